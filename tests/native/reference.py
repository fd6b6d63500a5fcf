"""Single launches by the numpy reference."""

from __future__ import annotations

from helios.kernels.catalogue import BY_NAME
from helios.runtime.reference.kernels import KERNELS
from tests.native.launches import Array, Case


def by_reference(case: Case) -> dict[str, Array]:
    """Every operand as the reference leaves it."""
    memory = {name: array.copy() for name, array in case.operands.items()}
    flat = [
        None if operand.name not in memory else memory[operand.name].reshape(-1)
        for operand in BY_NAME[case.kernel].operands
    ]
    KERNELS[case.kernel](*flat, **case.integers, **case.floats)
    return memory
