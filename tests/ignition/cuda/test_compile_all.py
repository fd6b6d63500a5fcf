"""Many requests at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from helios.errors import ExecutionError
from tests.ignition.cuda import ending_kernels
from tests.ignition.cuda.interpreted import WITHOUT_TRITON

pytest.importorskip("triton", reason=WITHOUT_TRITON)

from ignition.kernels.cuda.compile_all import compile_all


def request(function: Any) -> Any:
    """As much of a KernelRequest as travels, of what only another process compiles."""
    kernel = SimpleNamespace(
        __module__=function.__module__, __name__=function.__name__, is_gluon=lambda: True
    )
    return SimpleNamespace(
        function=kernel, arguments={}, constants={}, num_warps=4, num_stages=1,
        multiples_of_16=frozenset(), maximum_registers=None,
    )  # fmt: skip


def test_a_process_that_is_ended_while_it_compiles_is_told_in_a_line() -> None:
    requests = {str(number): request(ending_kernels.kernel) for number in range(3)}
    with pytest.raises(
        ExecutionError, match=r"^compiling kernels: a process was ended.* Free memory"
    ):
        compile_all(requests, "sm_90", lambda done: None)
