"""Functions of a core's modules, loaded and held against what the manifest says of them.

A module is loaded when the first function of it is wanted. The driver knows each function's
parameters; they are compared with the arguments that nodes give, once a function, so that a module
that another compiler made is refused at start-up and nothing is ever launched with shifted
arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from helios.errors import ContractError
from helios.phases import Phases
from helios.runtime.devices.cuda.driver import (
    INVALID_VALUE,
    NOT_FOUND,
    SUCCESS,
    DriverError,
    check,
    failure,
)
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.devices.cuda.images import check_image
from helios.runtime.manifest import (
    CudaArgument,
    CudaInteger,
    CudaTarget,
    CudaTensorMap,
    Operand,
)

# What a function may have without asking for more.
_SHARED_WITHOUT_ASKING: Final = 48 * 1024
_REMEDY: Final = "Prepare the core again with this version of Ignition"
# What the driver says of an image that it can't take, whatever else is right: invalid, for another
# GPU, of a newer compiler or format.
_OF_IMAGES: Final = frozenset((1, 200, 209, 218, 222, 223))
# The compiler appends two addresses to every function, of memory that ours don't use.
_HIDDEN: Final = (8, 8)
_MAP_NBYTES: Final = (128, 4, 4, 8, 8)


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """A function as launches need it. `sizes` are those of its parameters, hidden ones without."""

    handle: Any
    name: str
    threads: int
    shared_nbytes: int
    sizes: tuple[int, ...]
    hidden: int


def parameter_sizes(arguments: Sequence[CudaArgument]) -> tuple[int, ...]:
    """Bytes of each parameter that arguments become."""
    sizes: list[int] = []
    for argument in arguments:
        if isinstance(argument, Operand):
            sizes.append(8)
        elif isinstance(argument, CudaInteger):
            sizes.append(argument.width // 8)
        elif isinstance(argument, CudaTensorMap):
            sizes.extend(_MAP_NBYTES)
        else:  # an f32 or a count of rows
            sizes.append(4)
    return tuple(sizes)


class Functions:
    """The functions of a target, by their index in the manifest."""

    def __init__(
        self, gpu: Gpu, target: CudaTarget, modules: Mapping[str, bytes], phases: Phases
    ) -> None:
        self._gpu = gpu
        self._phases = phases
        self._target = target
        self._images = modules
        self._modules: dict[str, Any] = {}
        self._functions: dict[int, LoadedFunction] = {}

    def get(self, index: int, sizes: tuple[int, ...], where: str) -> LoadedFunction:
        """A function that takes arguments of these sizes. Raises ContractError naming `where` if
        it doesn't, DriverError if its module can't be loaded."""
        found = self._functions.get(index)
        if found is None:
            found = self._functions[index] = self._load(index, len(sizes), where)
        if found.sizes != sizes:
            raise ContractError(
                f"function {found.name!r} takes parameters of {list(found.sizes)} bytes, and is"
                f" given {list(sizes)}",
                where=where,
                remedy=_REMEDY,
            )
        return found

    def close(self) -> None:
        """Unloads the modules; errors of a context that is lost don't matter any more."""
        for module in self._modules.values():
            self._gpu.driver.cuModuleUnload(module)
        self._modules = {}
        self._functions = {}

    def _load(self, index: int, visible: int, where: str) -> LoadedFunction:
        gpu, driver = self._gpu, self._gpu.driver
        declared = self._target.functions[index]
        status, handle = driver.cuModuleGetFunction(
            self._module(declared.module), declared.function.encode()
        )
        if status == NOT_FOUND:
            raise ContractError(
                f"module {declared.module!r} has no function {declared.function!r}",
                where=where,
                remedy=_REMEDY,
            )
        if status != SUCCESS:  # modules may be brought to the GPU no sooner than here
            raise failure(driver, int(status), f"taking function {declared.function}")
        if declared.shared_nbytes > _SHARED_WITHOUT_ASKING:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            gpu.call(
                f"asking for the shared memory of {declared.function}",
                driver.cuFuncSetAttribute,
                handle,
                attribute,
                declared.shared_nbytes,
            )
        sizes = self._sizes(handle)
        hidden = sizes[visible:] if sizes[visible:] == _HIDDEN else ()
        return LoadedFunction(
            handle,
            declared.function,
            declared.threads,
            declared.shared_nbytes,
            sizes[: len(sizes) - len(hidden)],
            len(hidden),
        )

    def _sizes(self, function: Any) -> tuple[int, ...]:
        """Of all parameters, as the driver knows them."""
        driver = self._gpu.driver
        sizes: list[int] = []
        while True:
            result = driver.cuFuncGetParamInfo(function, len(sizes))
            if result[0] == INVALID_VALUE:
                return tuple(sizes)
            _, size = check(driver, result, "reading a function's parameters")
            sizes.append(int(size))

    def _module(self, name: str) -> Any:
        module = self._modules.get(name)
        if module is not None:
            return module
        image = self._images.get(name)
        if image is None:
            raise ContractError("is not among the rank's modules", where=f"module {name!r}")
        check_image(name, image)
        try:
            with self._phases("module_loading"):
                module = self._gpu.call(
                    f"loading module {name}", self._gpu.driver.cuModuleLoadData, image
                )
        except DriverError as error:
            if error.code not in _OF_IMAGES:
                raise
            raise ContractError(str(error), where=f"module {name!r}", remedy=_REMEDY) from error
        self._modules[name] = module
        return module
