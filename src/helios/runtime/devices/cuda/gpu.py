"""One GPU, opened: its context and streams, its memory, and whether a target's modules run on it.

Everything else in this package works on a `Gpu`. Calls may come from any thread; each makes the
context current first (`make_current`), which costs next to nothing where it is already.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from threading import local
from typing import Any, Final

from helios.errors import ContractError, ExecutionError
from helios.runtime.devices.cuda.driver import INVALID_DEVICE, DriverError, bindings, check

_TARGET: Final = re.compile(r"cuda:sm_(?P<major>\d+)(?P<minor>\d)")
# From here on modules are compiled for one compute capability alone; before, later ones of the
# same generation run them too.
_EXACT_FROM: Final = 9
_NON_BLOCKING: Final = 1


@dataclass(frozen=True, slots=True)
class Capability:
    """A compute capability, like 9.0."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def runs(self, compiled_for: Capability) -> bool:
        """Whether modules compiled for another one run on a GPU of this one."""
        if compiled_for.major >= _EXACT_FROM:
            return self == compiled_for
        return self.major == compiled_for.major and self.minor >= compiled_for.minor


def required_capability(target: str) -> Capability:
    """What a target's name asks for. Raises ContractError for a name that is none of cuda's."""
    found = _TARGET.fullmatch(target)
    if found is None:
        raise ContractError(
            f"{target!r} is no cuda target", where="target", remedy="Name one like cuda:sm_90"
        )
    return Capability(int(found["major"]), int(found["minor"]))


class _InThread(local):
    """The GPU whose context is current in the calling thread, as far as this package has set it."""

    gpu: Gpu | None = None


# A thread that drives several GPUs asks it before calls for one of them.
in_thread: Final = _InThread()


def count_gpus() -> int:
    """Those that the driver sees. Raises ExecutionError where there is no driver, or none."""
    driver = bindings()
    return int(check(driver, driver.cuDeviceGetCount(), "counting GPUs"))


class Gpu:
    """The GPU of an ordinal, its primary context current in the calling thread.

    `stream` runs rounds, one after the other; `copies` moves what isn't part of a round.
    """

    def __init__(self, target: str, ordinal: int) -> None:
        required = required_capability(target)
        self.driver = driver = bindings()
        try:
            self.device = check(driver, driver.cuDeviceGet(ordinal), "choosing a GPU")
        except DriverError as error:
            if error.code != INVALID_DEVICE:
                raise
            raise ExecutionError(
                f"there is no GPU {ordinal}; the driver sees {count_gpus()}",
                where="device",
                remedy="Choose one with --device, counting from 0",
            ) from error
        self.ordinal = ordinal
        self.name = self._name()
        self.capability = Capability(
            self._attribute("COMPUTE_CAPABILITY_MAJOR"), self._attribute("COMPUTE_CAPABILITY_MINOR")
        )
        if not self.capability.runs(required):
            raise ExecutionError(
                f"{target} is for compute capability {required}, and GPU {ordinal} ({self.name})"
                f" has {self.capability}",
                where="target",
                remedy="Choose another GPU with --device, or prepare the core for this one",
            )
        self._context = check(
            driver, driver.cuDevicePrimaryCtxRetain(self.device), "opening a context"
        )
        self._streams: list[Any] = []
        try:
            self.make_current()
            self.stream = self._stream()
            self.copies = self._stream()
        except BaseException:
            self.close()
            raise

    def call(self, doing: str, function: Any, *arguments: Any) -> Any:
        """A call of the driver, checked."""
        return check(self.driver, function(*arguments), doing)

    def make_current(self) -> None:
        """Makes the context the calling thread's."""
        in_thread.gpu = None  # whatever comes of it
        check(self.driver, self.driver.cuCtxSetCurrent(self._context), "taking the context")
        in_thread.gpu = self

    def free_nbytes(self) -> int:
        """Device memory that can be taken now."""
        free, _ = check(self.driver, self.driver.cuMemGetInfo(), "asking for free memory")
        return int(free)

    def finish_copies(self) -> None:
        """Waits for the stream of copies."""
        self.call("copying", self.driver.cuStreamSynchronize, self.copies)

    def close(self) -> None:
        """Gives streams and context back; whatever the driver says to it, they are given up. Of a
        context that can't be taken any more nothing is touched: another GPU's may be current."""
        driver = self.driver
        with suppress(DriverError):
            self.make_current()
            for stream in self._streams:
                driver.cuStreamDestroy(stream)
        driver.cuDevicePrimaryCtxRelease(self.device)
        in_thread.gpu = None

    def _stream(self) -> Any:
        stream = self.call("making a stream", self.driver.cuStreamCreate, _NON_BLOCKING)
        self._streams.append(stream)
        return stream

    def _name(self) -> str:
        name: bytes = self.call("asking for a name", self.driver.cuDeviceGetName, 256, self.device)
        return name.partition(b"\0")[0].decode(errors="replace")

    def _attribute(self, name: str) -> int:
        attribute = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(
            self.call(
                f"asking for {name}", self.driver.cuDeviceGetAttribute, attribute, self.device
            )
        )
