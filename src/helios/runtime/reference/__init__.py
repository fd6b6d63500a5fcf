"""The `reference` target: every kernel of docs/kernels.md in numpy float32, a device that replays
a `cpu` manifest with them launch by launch, and the differ that holds another device against it.

It is the float32 truth of the stored weights: activation formats and 16-bit caches are ignored.
Used by Ignition to record oracles, by tests and by `helios verify`; never while serving.
"""
