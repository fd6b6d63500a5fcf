"""Triton kernels of the `cuda` target and their ahead-of-time compilation.

`projection` and `attention` hold kernels (`attention_blocks` the arithmetic of the latter),
`tiles` which blocks each shape and row count takes, `compile` what turns a kernel into a cubin with
its launch description. Importing this package or `tiles` imports no Triton; the other modules do
(extra `cuda-prepare`).
"""
