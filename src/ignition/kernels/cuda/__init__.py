"""Triton kernels of the `cuda` target and their ahead-of-time compilation.

`projection` and `attention` hold kernels, `tiles` which blocks each shape and row count takes,
`compile` what turns a kernel into a cubin with its launch description. Importing this package
imports no Triton; its kernel modules and `compile` do (extra `cuda-prepare`).
"""
