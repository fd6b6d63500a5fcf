"""What a contract and an execution manifest must agree on, a module a subject.

`helios.runtime.manifest_checks` runs them all at load, before any memory is taken.
"""
