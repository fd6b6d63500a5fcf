"""Kernels that Ignition compiles ahead of time into a core, by target."""
