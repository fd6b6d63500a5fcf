"""Runs the launches of tests on a GPU, with kernels that were compiled elsewhere.

Takes the place of the interpreter where HELIOS_CUDA_TESTS says so (`interpreted`). Needs
cuda-bindings and a GPU, and a Triton whose kernels can be imported, whichever version. Operands lie
between margins which must be as they were afterwards, and so must what is only read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import BY_NAME
from helios.runtime.manifest import DType
from ignition.kernels.cuda.launches import At, Counters, CudaKernel, RowsOf, Scratch, TensorMap
from tests.ignition.cuda.carried_kernels import Carried, key_of, load
from tests.ignition.cuda.lowered_cases import Launch, kernels_of

Array = NDArray[Any]
_MARGIN = 256
_FILL = 0xA5
_POISON = 0xFF  # NaN in every float format
_SHARED_WITHOUT_ASKING = 48 * 1024


def execute(
    folder: Path,
    lowering: str,
    launches: Sequence[Launch],
    arrays: Mapping[str, Array],
    unread: Collection[str],
) -> dict[str, Array]:
    """The arrays after the launches. Raises AssertionError for what a kernel may not do."""
    gpu = _gpu(folder)
    kernels = kernels_of(lowering, launches, list(arrays), unread)
    memory = _Memory(gpu, arrays, kernels)
    try:
        for kernel in kernels:
            gpu.launch(kernel, launches, memory)
        gpu.finish()
        return memory.read(launches)
    finally:
        memory.free()


@cache
def _gpu(folder: Path) -> _Gpu:
    return _Gpu(folder)


class _Gpu:
    """The first GPU, and the kernels of a folder, loaded as they are met."""

    def __init__(self, folder: Path) -> None:
        from cuda.bindings import driver

        self.driver = driver
        self._folder = folder
        self._carried = load(folder)
        self._functions: dict[str, Any] = {}
        self.call(driver.cuInit(0))
        device = self.call(driver.cuDeviceGet(0))
        context = self.call(driver.cuDevicePrimaryCtxRetain(device))
        self.call(driver.cuCtxSetCurrent(context))

    def call(self, answer: tuple[Any, ...]) -> Any:
        """The value of a driver call."""
        status, *values = answer
        assert int(status) == 0, f"the driver answered {status.name}"
        return values[0] if values else None

    def carried(self, kernel: CudaKernel) -> Carried:
        """The compiled kernel."""
        found = self._carried.get(key_of(kernel.request))
        assert found is not None, f"{kernel.request.name} isn't in the bundle"
        return found

    def _function(self, carried: Carried) -> Any:
        if carried.cubin not in self._functions:
            driver = self.driver
            content = (self._folder / carried.cubin).read_bytes()
            module = self.call(driver.cuModuleLoadData(content))
            function = self.call(driver.cuModuleGetFunction(module, carried.function.encode()))
            for number, nbytes in enumerate(carried.parameters):
                status, _, size = driver.cuFuncGetParamInfo(function, number)
                assert int(status) == 0
                assert size == nbytes
            if carried.shared_nbytes > _SHARED_WITHOUT_ASKING:
                attribute = driver.CUfunction_attribute
                limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self.call(driver.cuFuncSetAttribute(function, limit, carried.shared_nbytes))
            self._functions[carried.cubin] = function
        return self._functions[carried.cubin]

    def launch(self, kernel: CudaKernel, launches: Sequence[Launch], memory: _Memory) -> None:
        """Queues a kernel."""
        carried = self.carried(kernel)
        maps = {name: entry for name, *entry in carried.descriptors}
        values: list[Any] = []
        for name, kind in kernel.request.arguments.items():
            value = kernel.arguments[name]
            if isinstance(value, TensorMap):
                array = memory.arrays[launches[value.launch].operands[value.operand]]
                address = memory.addresses[launches[value.launch].operands[value.operand]]
                values += self._tensor_map(address, array.nbytes, value.columns, *maps[name])
            elif kind.startswith("*"):
                values.append(ctypes.c_uint64(memory.address(value, launches)))
            else:
                multiple = name in kernel.request.multiples_of_16
                values.append(memory.scalar(kind, value, launches, multiple=multiple))
        values += [ctypes.c_uint64(0)] * 2
        assert len(values) == len(carried.parameters)
        addresses = (ctypes.c_void_p * len(values))(
            *(v.getPtr() if hasattr(v, "getPtr") else ctypes.addressof(v) for v in values)
        )
        self.call(
            self.driver.cuLaunchKernel(
                self._function(carried), *kernel.grid, carried.threads, 1, 1,
                carried.shared_nbytes, 0, ctypes.addressof(addresses), 0,
            )
        )  # fmt: skip

    def _tensor_map(
        self, address: int, nbytes: int, columns: int, box: Any, swizzle: int, element: int
    ) -> list[Any]:
        driver = self.driver
        itemsize = {9: 2, 6: 2, 7: 4, 4: 4, 0: 1}[element]
        rows = nbytes // itemsize // columns
        made = driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType(element), 2, address,
            [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
            [driver.cuuint64_t(columns * itemsize)],
            [driver.cuuint32_t(extent) for extent in reversed(box)],
            [driver.cuuint32_t(1), driver.cuuint32_t(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle(swizzle),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )  # fmt: skip
        return [
            self.call(made), ctypes.c_int32(rows), ctypes.c_int32(columns),
            ctypes.c_int64(columns), ctypes.c_int64(1),
        ]  # fmt: skip

    def finish(self) -> None:
        """Waits for what is queued."""
        self.call(self.driver.cuCtxSynchronize())


class _Memory:
    """Arrays, scratch and counters of one execution, in one allocation with margins."""

    def __init__(
        self, gpu: _Gpu, arrays: Mapping[str, Array], kernels: Sequence[CudaKernel]
    ) -> None:
        self.arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        self._gpu = gpu
        counts = [a.count for k in kernels for a in k.arguments.values() if isinstance(a, Counters)]
        content: dict[Any, NDArray[np.uint8]] = {
            name: array.reshape(-1).view(np.uint8) for name, array in self.arrays.items()
        }
        content["counters"] = np.zeros(4 * max(counts, default=1), np.uint8)
        for kernel in kernels:
            for argument in kernel.arguments.values():
                if isinstance(argument, Scratch):
                    nbytes = DType(argument.dtype).row_nbytes(int(np.prod(argument.shape)))
                    content[argument] = np.full(nbytes, _POISON, np.uint8)
        self._offsets: dict[Any, int] = {}
        end = _MARGIN
        for name, part in content.items():
            self._offsets[name] = end
            end += -(-part.nbytes // _MARGIN) * _MARGIN + _MARGIN
        self._before = np.full(end, _FILL, np.uint8)
        for name, part in content.items():
            self._before[self._offsets[name] :][: part.nbytes] = part
        self._sizes = {name: part.nbytes for name, part in content.items()}
        self._base = int(gpu.call(gpu.driver.cuMemAlloc(end)))
        gpu.call(gpu.driver.cuMemcpyHtoD(self._base, self._before.ctypes.data, end))
        self.addresses = {name: self._base + offset for name, offset in self._offsets.items()}

    def address(self, value: Any, launches: Sequence[Launch]) -> int:
        """What a pointer argument is."""
        if isinstance(value, At):
            name = launches[value.launch].operands.get(value.operand)
            return 0 if name is None else self.addresses[name]
        if isinstance(value, Counters):
            return self.addresses["counters"]
        assert isinstance(value, Scratch), f"{value!r} is no address"
        return self.addresses[value]

    def scalar(self, kind: str, value: Any, launches: Sequence[Launch], *, multiple: bool) -> Any:
        """What a number is."""
        if isinstance(value, RowsOf):
            name = launches[value.launch].operands[value.operand]
            value = self.arrays[name].nbytes // value.row_nbytes
        assert not multiple or value % 16 == 0
        kinds = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
        return kinds[kind](value)

    def read(self, launches: Sequence[Launch]) -> dict[str, Array]:
        """The arrays now."""
        after = np.empty_like(self._before)
        self._gpu.call(self._gpu.driver.cuMemcpyDtoH(after.ctypes.data, self._base, after.nbytes))
        writable = {
            launch.operands[spec.name]
            for launch in launches
            for spec in BY_NAME[launch.kernel].operands
            if "w" in spec.access and spec.name in launch.operands
        }
        kept = np.ones(after.nbytes, np.bool_)
        for name, offset in self._offsets.items():
            if isinstance(name, Scratch) or name in writable:
                kept[offset : offset + self._sizes[name]] = False
        wrong = np.flatnonzero(kept & (after != self._before))
        if wrong.size:
            nearest = min(self._offsets, key=lambda n: abs(int(wrong[0]) - self._offsets[n]))
            raise AssertionError(
                f"{wrong.size} bytes changed that nothing may write, the first"
                f" {int(wrong[0]) - self._offsets[nearest]} after the start of {nearest}"
            )
        found = {}
        for name, array in self.arrays.items():
            part = after[self._offsets[name] :][: array.nbytes]
            found[name] = part.view(array.dtype).reshape(array.shape).copy()
        return found

    def free(self) -> None:
        """Gives the memory back."""
        self._gpu.driver.cuMemFree(self._base)
