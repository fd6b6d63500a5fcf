"""What the `cpu` device refuses before it takes any memory."""

from __future__ import annotations

import pytest

from helios.errors import ExecutionError
from helios.runtime.device import DeviceOptions
from helios.runtime.devices.cpu import CpuDevice


@pytest.mark.parametrize("threads", [-1, 1025, 100_000])
def test_thread_counts_out_of_bounds_name_the_bound(threads: int) -> None:
    with pytest.raises(ExecutionError, match=rf"1 and 1024.*{threads}") as caught:
        CpuDevice(DeviceOptions(threads, None))
    assert caught.value.where == "threads"
