"""The device of a target: opened by name, given up where it no longer answers.

`ModelRuntime` is the caller. Imports are inside: each device brings libraries that the others don't
need.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from helios.errors import ContractError
from helios.runtime.device import Device, DeviceOptions
from helios.runtime.manifest import CudaTarget

# Devices that were given up: their threads may still use their memory, and closing them would wait
# for what never completes. The process that was to serve ends instead.
_STALLED: Final[list[Device]] = []


def open_device(
    target: str,
    options: DeviceOptions,
    cuda: CudaTarget | None = None,
    modules: Mapping[str, bytes] = MappingProxyType({}),
) -> Device:
    """The device of a target, which has no memory yet; `cuda` and `modules` are what the manifest
    and the core have for cuda targets. Raises ContractError for unknown targets, ExecutionError
    where the machine lacks what a target needs."""
    if target == "cpu":
        from helios.runtime.devices.cpu import CpuDevice

        return CpuDevice(options)
    if target == "reference":
        from helios.runtime.reference.device import ReferenceDevice

        return ReferenceDevice()
    if target.startswith("cuda:"):
        from helios.runtime.devices.cuda.device import CudaDevice

        return CudaDevice(target, options, cuda, modules)
    raise ContractError(
        f"this Helios has no device for target {target!r}",
        where="target",
        remedy="Choose cpu, reference or a cuda target like cuda:sm_90",
    )


def give_up(device: Device) -> None:
    """Keeps a stalled device alive to the process's end."""
    _STALLED.append(device)
