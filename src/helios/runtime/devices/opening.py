"""The device of a target: opened by name, given up where it no longer answers.

`ModelRuntime` is the caller. Imports are inside: each device brings libraries that the others don't
need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Final

from helios.contract.fields import refuse
from helios.errors import ContractError, ExecutionError
from helios.runtime.device import Device, DeviceOptions
from helios.runtime.manifest import CudaTarget, Manifest
from helios.runtime.targets import CUDA, runs
from helios.runtime.tuning import StalledError

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


@contextmanager
def early_start(target: str | None, ordinal: int) -> Iterator[None]:
    """A block in which the device of a target is opened; what the device's system needs for itself
    begins at once, where the target's name already says what that is. Raises nothing of its own."""
    if target is None or not target.startswith(CUDA):
        yield
        return
    from helios.runtime.devices.cuda.early import EarlyContext

    context = EarlyContext(ordinal)
    try:
        yield
    finally:
        context.close()


def check_devices(target: str, options: DeviceOptions, ranks: int) -> None:
    """Raises ExecutionError where the machine hasn't a device for each of several ranks."""
    if not target.startswith("cuda:"):
        return
    from helios.runtime.devices.cuda.gpu import count_gpus

    count, needed = count_gpus(), options.ordinal + ranks
    if count < needed:
        after = f", from GPU {options.ordinal} on: {needed} in all" if options.ordinal else ""
        raise ExecutionError(
            f"its {ranks} ranks need a GPU each{after}; the driver sees {count}",
            where=f"target {target}",
            remedy="Run it where there are as many, or use a core with fewer ranks",
        )


class DeviceOpening:
    """A device that is being opened for a manifest, on a thread of its own where that takes a
    while: what else there is to load is loaded meanwhile. `device` is one that is open already.
    Ends with `take` or with `abandon`. Raises ContractError for another target's manifest."""

    def __init__(
        self,
        target: str,
        options: DeviceOptions,
        manifest: Manifest,
        modules: Mapping[str, bytes],
        device: Device | None = None,
    ) -> None:
        if not runs(target, manifest.target):
            refuse("target", f"the manifest is for {manifest.target!r}, not {target!r}")
        self._open = partial(open_device, target, options, manifest.cuda, modules)
        self._given = device
        self._opened: Future[Device] | None = None
        if device is None and manifest.cuda is not None:
            pool = ThreadPoolExecutor(1, thread_name_prefix="helios-device")
            self._opened = pool.submit(self._open)
            pool.shutdown(wait=False)

    def take(self) -> Device:
        """The device. Raises what `open_device` raises."""
        if self._given is not None:
            return self._given
        opened, self._opened = self._opened, None
        return self._open() if opened is None else opened.result()

    def abandon(self) -> None:
        """Closes what was opened here, if anything was and nobody took it."""
        if self._opened is not None and self._opened.exception() is None:
            self._opened.result().close()


@contextmanager
def closed_on_failure(device: Device) -> Iterator[None]:
    """Closes a device where the block raises; a stalled one is kept to the process's end."""
    try:
        yield
    except StalledError:
        _STALLED.append(device)
        raise
    except BaseException:
        device.close()
        raise
