"""What the `cpu` device refuses before it takes any memory."""

from __future__ import annotations

import pytest

from helios.contract.enums import Operation
from helios.errors import ContractError, ExecutionError
from helios.kernels.catalogue import BY_NAME, CUDA_ALONE
from helios.runtime.device import DeviceOptions, MemoryPlan
from helios.runtime.devices.cpu import CpuDevice
from helios.runtime.manifest import Launch, Program


@pytest.mark.parametrize("threads", [-1, 1025, 100_000])
def test_thread_counts_out_of_bounds_name_the_bound(threads: int) -> None:
    with pytest.raises(ExecutionError, match=rf"1 and 1024.*{threads}") as caught:
        CpuDevice(DeviceOptions(threads, None))
    assert caught.value.where == "threads"


@pytest.mark.parametrize("kernel", sorted(CUDA_ALONE))
def test_kernels_of_other_devices_are_named(kernel: str) -> None:
    spec = BY_NAME[kernel]
    launch = Launch(spec, (None,) * len(spec.operands), (1,) * len(spec.integers), ())
    program = Program("decode.b1", Operation.DECODE, 1, 0, 1, 1, (launch,), (), "", (), ())
    device = CpuDevice(DeviceOptions(threads=1))
    device.allocate(MemoryPlan((), {}, 0), {})
    with pytest.raises(ContractError, match=f"no kernel {kernel}") as caught:
        device.load([program])
    device.close()
    assert caught.value.where == "program decode.b1"
    assert "prepared for" in caught.value.remedy
