"""A trial's arrays are as large as its launches need: what a GPU's runtime would refuse."""

from __future__ import annotations

import pytest

from helios.kernels.catalogue import BY_NAME
from helios.runtime.launch_extents import operand_nbytes
from helios.runtime.manifest import Launch
from tests.gpu.every_trial import EVERY_TRIAL, make
from tests.native.launches import Case

# Dimensions of models whose arrays take gigabytes.
_LARGE = ("8B", "0.6B")
SMALL = [name for name in EVERY_TRIAL if not any(part in name for part in _LARGE)]
KINDS = sorted({name.partition(" ")[0] for name in SMALL})


def too_short(case: Case) -> list[str]:
    """Operands with less than what the launch needs."""
    kernel = BY_NAME[case.kernel]
    integers = tuple(case.integers[name] for name in kernel.integers)
    launch = Launch(kernel, (None,) * len(kernel.operands), integers, ())
    return [
        f"{case.kernel}.{spec.name}: {array.nbytes} of {nbytes} bytes"
        for spec, nbytes in zip(kernel.operands, operand_nbytes(launch), strict=True)
        if (array := case.operands.get(spec.name)) is not None and array.nbytes < nbytes
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_array_is_large_enough(kind: str) -> None:
    for name in SMALL:
        if name.partition(" ")[0] != kind:
            continue
        for label, run in make(name).runs.items():
            for case in run.cases:
                assert not too_short(case), (name, label)
