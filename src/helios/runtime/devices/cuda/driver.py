"""The CUDA driver's interface as this package calls it: opened once, every result checked.

`bindings()` gives the module `cuda.bindings.driver` with the driver initialised; `check` turns a
call's result into its value or a `DriverError`. Who calls on the hot path compares the status
itself and comes here for the error alone.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any, Final

from helios.errors import ExecutionError

BINDINGS_MAJOR: Final = 13
# Driver 580, in the driver's words.
_OLDEST_DRIVER: Final = 13_000
SUCCESS: Final = 0
INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
NO_DEVICE: Final = 100
INVALID_DEVICE: Final = 101
NOT_FOUND: Final = 500
NOT_READY: Final = 600

# After these the context does nothing any more: every call fails, and a new process is needed.
_LOST: Final = MappingProxyType(
    {
        46: "another process holds the GPU, or it is gone",
        214: "the GPU's memory has an error that can't be corrected",
        220: "a link between GPUs has an error that can't be corrected",
        226: "a kernel met an error that was contained, and the context is over",
        700: "a kernel read or wrote memory that isn't there",
        702: "a kernel ran longer than the system allows",
        709: "the context is gone",
        710: "a kernel's assertion failed",
        714: "a kernel met an error of the hardware's stack",
        715: "a kernel met an instruction that the GPU doesn't have",
        716: "a kernel read or wrote memory at an address that isn't aligned",
        717: "a kernel used an address space where it may not",
        718: "a kernel's program counter left its program",
        719: "a kernel failed for a reason that the driver doesn't know",
        802: "the system isn't ready for CUDA",
        999: "the driver met an error that it doesn't know",
    }
)
_REMEDIES: Final = MappingProxyType(
    {OUT_OF_MEMORY: "Ask for less with --cache-memory, or free the GPU's memory"}
)
_RESTART: Final = "Start again; where it comes back, report it with the core's digest"


class DriverError(ExecutionError):
    """A call of the driver failed. `code` is its CUresult; with `lost` nothing on the GPU goes on
    in this process."""

    def __init__(self, what: str, *, where: str, remedy: str, code: int, lost: bool) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.code = code
        self.lost = lost


@cache
def bindings() -> Any:
    """`cuda.bindings.driver`, initialised. Raises ExecutionError that says what is missing and how
    it is had."""
    try:
        import cuda.bindings
        from cuda.bindings import driver
    except ImportError as error:
        raise ExecutionError(
            f"cuda-bindings can't be imported ({error})",
            where="cuda target",
            remedy="Install Helios with its extra: pip install 'helios-serve[cuda]'",
        ) from error
    version = cuda.bindings.__version__
    if version.partition(".")[0] != str(BINDINGS_MAJOR):
        raise ExecutionError(
            f"cuda-bindings is {version}, and this Helios calls {BINDINGS_MAJOR}.x",
            where="cuda target",
            remedy="Install Helios with its extra: pip install 'helios-serve[cuda]'",
        )
    try:
        status = int(driver.cuInit(0)[0])
    except RuntimeError as error:  # of the search for the library
        raise ExecutionError(
            "there is no NVIDIA driver: libcuda.so.1 isn't found",
            where="cuda target",
            remedy="Install the driver, 580 or newer (on Ubuntu apt-get install"
            " nvidia-driver-580-open), or let the container see it (docker run --gpus all)",
        ) from error
    if status == NO_DEVICE:
        raise ExecutionError(
            "the NVIDIA driver sees no GPU",
            where="cuda target",
            remedy="Look at nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    if status != SUCCESS:
        raise failure(driver, status, "initialising the driver")
    version = int(check(driver, driver.cuDriverGetVersion(), "asking for the driver's version"))
    if version < _OLDEST_DRIVER:
        # Functions that are called later would be missing, one by one.
        raise ExecutionError(
            f"the NVIDIA driver is one of CUDA {version // 1000}.{version % 1000 // 10}",
            where="cuda target",
            remedy="Install driver 580 or newer (CUDA 13.0)",
        )
    return driver


def failure(driver: Any, status: int, doing: str) -> DriverError:
    """The error of a call that gave `status`, while `doing` something."""
    try:
        name = driver.CUresult(status).name
    except ValueError:
        name = f"CUDA error {status}"
    meaning = _LOST.get(status)
    lost = meaning is not None
    if meaning is None:
        said, text = driver.cuGetErrorString(driver.CUresult(status))
        meaning = text.decode(errors="replace") if int(said) == SUCCESS else "no meaning is known"
    return DriverError(
        f"{name}: {meaning}",
        where=f"GPU, {doing}",
        remedy=_RESTART if lost else _REMEDIES.get(status, ""),
        code=status,
        lost=lost,
    )


def check(driver: Any, result: tuple[Any, ...], doing: str) -> Any:
    """What a call returned beside its status: nothing, one value or several. Raises DriverError."""
    status, *values = result
    if status != SUCCESS:
        raise failure(driver, int(status), doing)
    return values[0] if len(values) == 1 else tuple(values)
