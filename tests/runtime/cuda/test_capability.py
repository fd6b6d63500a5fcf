"""Which GPUs run a target's modules."""

from __future__ import annotations

import pytest

from helios.errors import ContractError
from helios.runtime.devices.cuda.gpu import Capability, required_capability


@pytest.mark.parametrize(
    ("has", "target", "runs"),
    [
        ((9, 0), "cuda:sm_90", True),
        ((9, 1), "cuda:sm_90", False),
        ((10, 0), "cuda:sm_90", False),
        ((10, 0), "cuda:sm_100", True),
        ((9, 0), "cuda:sm_89", False),
        ((8, 9), "cuda:sm_80", True),
        ((8, 0), "cuda:sm_89", False),
    ],
)
def test_modules_run_where_they_are_compiled_for(
    has: tuple[int, int], target: str, runs: bool
) -> None:
    assert Capability(*has).runs(required_capability(target)) is runs


@pytest.mark.parametrize("target", ["cpu", "cuda", "cuda:sm_9", "cuda:sm_90a"])
def test_other_names_are_no_cuda_targets(target: str) -> None:
    with pytest.raises(ContractError, match=f"'{target}' is no cuda target"):
        required_capability(target)
