"""Loads compiled variants through cuda-bindings and launches them on PyTorch's stream.

No Triton: the cubins and `kernels.json` of a folder are all there is. PyTorch owns the memory.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from gpu_parts.geometries import Attention, Projection

Variant = Projection | Attention
_TYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


@dataclass(frozen=True)
class Described:
    """A row-major matrix that a kernel reads through a tensor map."""

    tensor: torch.Tensor


def checked(answer: tuple[Any, ...]) -> Any:
    """The value of a driver call; raises `RuntimeError` with the error's name."""
    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the driver answered {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


class Kernel:
    """A loaded function; its parameter sizes are compared with the driver's when it is loaded."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        cubin = (folder / f"{entry['file']}.cubin").read_bytes()
        self._module = checked(driver.cuModuleLoadData(cubin))
        name = entry["function"].encode()
        self._function = checked(driver.cuModuleGetFunction(self._module, name))
        self._parameters = entry["parameters"]
        self._threads = entry["threads"]
        self._shared = entry["shared_nbytes"]
        self._descriptors = entry["descriptors"]
        attribute = driver.CUfunction_attribute
        for index, parameter in enumerate(self._parameters):
            offset, nbytes = checked(driver.cuFuncGetParamInfo(self._function, index))
            if nbytes != parameter["nbytes"] or parameter["offset"] not in (None, offset):
                raise RuntimeError(f"{entry['file']}: parameter {index} isn't as described")
        if self._shared > 48 * 1024:
            limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(driver.cuFuncSetAttribute(self._function, limit, self._shared))
        registers = attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
        local = attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
        self.registers: int = checked(driver.cuFuncGetAttribute(registers, self._function))
        self.local_nbytes: int = checked(driver.cuFuncGetAttribute(local, self._function))

    @property
    def function(self) -> Any:
        """The driver's handle."""
        return self._function

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return int(self._threads)

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a CTA."""
        return int(self._shared)

    def packed(self, arguments: Sequence[torch.Tensor | Described | float]) -> tuple[Any, Any]:
        """Addresses of the parameters, and what has to live as long as they are used."""
        descriptors = iter(self._descriptors)
        values = [value for argument in arguments for value in _values(argument, descriptors)]
        values += [0, 0]  # Triton's scratch pointers
        if len(values) != len(self._parameters):
            raise ValueError(f"{len(values)} values for {len(self._parameters)} parameters")
        kept: list[Any] = [
            value if parameter["kind"] == "map" else _boxed(parameter["kind"], value)
            for parameter, value in zip(self._parameters, values, strict=True)
        ]
        addresses = (ctypes.c_void_p * len(kept))(
            *(v.getPtr() if hasattr(v, "getPtr") else ctypes.addressof(v) for v in kept)
        )
        return addresses, (addresses, kept, arguments)

    def bind(
        self, grid: tuple[int, int, int], *arguments: torch.Tensor | Described | float
    ) -> Callable[[], None]:
        """A launch with these arguments, to be called any number of times."""
        addresses, kept = self.packed(arguments)

        def launch() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            checked(
                driver.cuLaunchKernel(
                    self._function,
                    *grid,
                    self._threads,
                    1,
                    1,
                    self._shared,
                    stream,
                    ctypes.addressof(addresses),
                    0,
                )
            )

        launch.kept = kept  # type: ignore[attr-defined]
        return launch


class Library:
    """The variants of a folder, loaded when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: dict[Variant, dict[str, Any]] = {}
        self._kernels: dict[Variant, Kernel] = {}
        for entry in json.loads((folder / "kernels.json").read_text()):
            kind = Projection if entry["kind"] == "Projection" else Attention
            self._entries[kind(**entry["variant"])] = entry

    def __contains__(self, variant: Variant) -> bool:
        return variant in self._entries

    def __getitem__(self, variant: Variant) -> Kernel:
        if variant not in self._kernels:
            self._kernels[variant] = Kernel(self._folder, self._entries[variant])
        return self._kernels[variant]


def _boxed(kind: str, value: Any) -> Any:
    if kind.startswith("*"):
        return ctypes.c_uint64(value)
    return _TYPES[kind](value)


def _values(argument: torch.Tensor | Described | float, descriptors: Any) -> list[Any]:
    if isinstance(argument, torch.Tensor):
        return [argument.data_ptr()]
    if isinstance(argument, Described):
        matrix = argument.tensor
        return [_tensor_map(matrix, next(descriptors)), *matrix.shape, *matrix.stride()]
    return [argument]


def _tensor_map(matrix: torch.Tensor, descriptor: dict[str, Any]) -> Any:
    rows, columns = matrix.shape
    integer = driver.cuuint64_t
    small = driver.cuuint32_t
    return checked(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType(descriptor["element"]),
            2,
            matrix.data_ptr(),
            [integer(columns), integer(rows)],
            [integer(columns * matrix.element_size())],
            [small(size) for size in reversed(descriptor["box"])],
            [small(1), small(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle(descriptor["swizzle"]),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
