"""The native library's catalogue is the catalogue."""

from __future__ import annotations

from helios import _native
from helios.kernels.catalogue import CATALOGUE, CUDA_ALONE


def test_names_and_orders_agree() -> None:
    expected = [
        (
            spec.name,
            [operand.name + "?" * operand.optional for operand in spec.operands],
            list(spec.integers),
            list(spec.floats),
        )
        for spec in CATALOGUE
        if spec.name not in CUDA_ALONE
    ]
    assert [tuple(entry) for entry in _native.catalogue()] == expected


def test_portable_is_always_there_and_last() -> None:
    assert _native.instruction_sets()[-1] == "portable"
