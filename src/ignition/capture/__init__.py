"""Records programs: buffers and launches, the op layer over them, and the workspace plan.

Knows kernels and memory, no model and no checkpoint. Recipes call `ops`; `Recorder.manifest`
gives the execution manifest that a core carries.
"""
