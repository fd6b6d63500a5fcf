"""Runs a catalogue launch's CUDA kernels in Triton's interpreter, over numpy arrays.

Started by `interpreted` as a process of its own, because Triton decides when it is imported
whether kernels are compiled or interpreted. Reads launches from standard input and answers each
with what the operands hold afterwards, or with a traceback.

Stricter than a GPU: an access outside every operand, a misaligned one, a write to an operand that
the catalogue only reads, a read or write of anything but weights before `gdc_wait`, a program
that ends without it, and counters that aren't zero at the end are errors. What differs from a
GPU: programs run one after the other, and matrix products sum in numpy's order.
"""

from __future__ import annotations

import itertools
import pickle
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter as base
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from helios.kernels.catalogue import BY_NAME
from helios.runtime.manifest import DType
from ignition.kernels.cuda.launches import (
    ARCHITECTURES,
    At,
    CatalogueLaunch,
    Counters,
    CudaKernel,
    RowsOf,
    Scratch,
    TensorMap,
)
from tests.ignition.cuda.placed_memory import ALIGNMENT, POISON, Memory

Array = NDArray[Any]
# What nobody writes while a model serves, so that it may be read before `gdc_wait`.
WEIGHTS = {"weight", "table", "bias", "inverse_frequency", "q_norm", "k_norm"}


_memory = Memory()


def _install() -> None:
    """Puts checks around the interpreter's accesses, and mends what it computes otherwise than a
    GPU: bf16 is rounded to nearest even, its products are those of its values, and a condition
    stays one."""
    loads, stores = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    adds, swaps = InterpreterBuilder.create_atomic_rmw, InterpreterBuilder.create_atomic_cas
    casts, dots = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def size(pointers: Any) -> int:
        return max(1, pointers.get_element_ty().primitive_bitwidth // 8)

    def masked_load(
        self: Any, ptrs: Any, mask: Any, other: Any, cache_policy: Any, is_volatile: Any
    ) -> Any:
        _memory.check(ptrs.data, size(ptrs), mask.data, writing=False)
        return loads(self, ptrs, mask, other, cache_policy, is_volatile)

    def masked_store(self: Any, ptrs: Any, value: Any, mask: Any, cache_policy: Any) -> Any:
        _memory.check(ptrs.data, size(ptrs), mask.data, writing=True)
        return stores(self, ptrs, value, mask, cache_policy)

    def atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        _memory.check(ptr.data, size(ptr), mask.data, writing=True)
        return adds(self, op, ptr, val, mask, sem, scope)

    def atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        _memory.check(ptr.data, size(ptr), np.ones(ptr.data.shape, np.bool_), writing=True)
        return swaps(self, ptr, cmp, val, sem, scope)

    def cast(self: Any, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == tl.bfloat16 and target == tl.float32:
            return TensorHandle(_from_bf16(src.data), target)
        if source == tl.float32 and target == tl.bfloat16:
            return TensorHandle(_to_bf16(src.data), target)
        return casts(self, src, dst_type)

    def fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        return cast(self, src, dst_type)

    def dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        def wide(handle: Any) -> Any:
            known = handle.dtype.scalar == tl.bfloat16
            return TensorHandle(_from_bf16(handle.data), tl.float32) if known else handle

        return dots(self, wide(a), wide(b), d, precision, imprecise)

    def splat(self: Any, ret_ty: Any, arg: Any) -> Any:
        # What a comparison gave is bool, though it is declared as what was compared.
        data = np.full(ret_ty.shape, arg.data.reshape(-1)[0], dtype=arg.data.dtype)
        return TensorHandle(data, arg.dtype.scalar)

    replacements: dict[str, Any] = {
        "create_masked_load": masked_load, "create_masked_store": masked_store,
        "create_atomic_rmw": atomic_rmw, "create_atomic_cas": atomic_cas, "cast_impl": cast,
        "create_fp_to_fp": fp_to_fp, "create_dot": dot, "create_splat": splat,
    }  # fmt: skip
    for name, function in replacements.items():
        assert hasattr(InterpreterBuilder, name), name
        setattr(InterpreterBuilder, name, function)
    # Kernels take these names from here when their modules are imported, which is later.
    extra: Any = import_module("triton.language.extra.cuda")
    extra.gdc_wait, extra.gdc_launch_dependents = _gdc_wait, _gdc_launch_dependents


def _gdc_wait() -> None:
    _memory.waited = True


def _gdc_launch_dependents() -> None:
    pass


def _from_bf16(data: Array) -> Array:
    return (np.asarray(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


def _to_bf16(data: Array) -> Array:
    bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF).astype(np.uint32)) >> 16
    return np.where(np.isnan(data), 0x7FC0, rounded).astype(np.uint16)


def execute(
    lowering: str,
    kernel: str,
    integers: Mapping[str, int],
    floats: Mapping[str, float],
    operands: Mapping[str, Array],
    descending: bool,
) -> dict[str, Array]:
    """The operands after the launches that `lowering` (`module:function`, or a kernel's name)
    makes of a catalogue launch; `descending` runs a grid's programs in the opposite order."""
    global _memory
    accesses = {spec.name: spec.access for spec in BY_NAME[kernel].operands}
    _memory = Memory()
    for name, array in operands.items():
        _memory.place(name, array, writable="w" in accesses[name], weight=name in WEIGHTS)
    launch = CatalogueLaunch(kernel, integers, floats, frozenset(operands), ARCHITECTURES["sm_90"])
    for cuda_kernel in _find(lowering)(launch):
        _run(cuda_kernel, descending)
    counters = _memory.places.get("counters")
    assert counters is None or not counters.array.any(), "counters aren't zero after the launch"
    return {name: _memory.places[name].array for name in operands}


def _find(lowering: str) -> Any:
    module, _, function = lowering.partition(":")
    if function:
        return getattr(import_module(module), function)
    return import_module("ignition.kernels.cuda.lowerings").LOWERINGS[lowering]


def _run(kernel: CudaKernel, descending: bool) -> None:
    request = kernel.request
    assert set(kernel.arguments) == set(request.arguments), "an argument is missing or unknown"
    _place_counters(kernel)
    arguments: dict[str, Any] = dict(request.constants)
    scope = base._patch_lang(request.function.fn)
    try:
        for name, kind in request.arguments.items():
            multiple = name in request.multiples_of_16
            arguments[name] = _argument(name, kind, kernel.arguments[name], multiple=multiple)
        function = request.function.rewrite()
        base.interpreter_builder.set_grid_dim(*kernel.grid)
        indices: Iterable[tuple[int, ...]] = itertools.product(*(range(n) for n in kernel.grid))
        for index in reversed(list(indices)) if descending else indices:
            base.interpreter_builder.set_grid_idx(*index)
            _memory.waited = not kernel.programmatic
            function(**arguments)
            assert _memory.waited, f"program {index} of {request.name} ends without gdc_wait"
    finally:
        scope.restore()
        _memory.waited = True


def _place_counters(kernel: CudaKernel) -> None:
    counts = [a.count for a in kernel.arguments.values() if isinstance(a, Counters)]
    if counts and "counters" not in _memory.places:
        _memory.place("counters", np.zeros(max(counts), np.int32), writable=True)
    for count in counts:
        assert _memory.places["counters"].array.size >= count, "give all kernels as many counters"


def _argument(name: str, kind: str, value: Any, *, multiple: bool) -> Any:
    if isinstance(value, TensorMap):
        return _descriptor(kind, value)
    if kind.startswith("*"):
        address = _address(value)
        assert address % ALIGNMENT == 0
        pointer = tl.str_to_ty(kind, None)
        return tl.tensor(TensorHandle(np.array([address], np.uint64), pointer), pointer)
    if isinstance(value, RowsOf):
        place = _memory.places[value.operand]
        value = (place.end - place.start) // value.row_nbytes
    scalar = tl.str_to_ty(kind, None)
    assert isinstance(value, (int, float)), f"{name} is {value!r}, its type {kind}"
    assert not multiple or value % ALIGNMENT == 0, f"{name} = {value} isn't a multiple of 16"
    data = np.array([value]).astype(base._get_np_dtype(scalar))
    assert kind.startswith("f") or data[0] == value, f"{name} = {value} doesn't fit {kind}"
    return tl.tensor(TensorHandle(data, scalar), scalar)


def _address(value: Any) -> int:
    if isinstance(value, At):
        place = _memory.places.get(value.operand)
        return place.start if place is not None else 0
    if isinstance(value, Counters):
        return _memory.places["counters"].start
    assert isinstance(value, Scratch), f"{value!r} is no address"
    nbytes = DType(value.dtype).row_nbytes(int(np.prod(value.shape)))
    content = np.full(nbytes, POISON, np.uint8)
    return _memory.place(f"scratch {value.role}", content, writable=True)


def _descriptor(kind: str, value: TensorMap) -> Any:
    found = re.fullmatch(r"tensordesc<(\w+)\[([0-9, ]+)\]>", kind)
    assert found is not None, kind
    block = [int(extent) for extent in found[2].split(",")]
    pointer = _argument(value.operand, f"*{found[1]}", At(value.operand), multiple=False)
    place = _memory.places[value.operand]
    itemsize = pointer.dtype.element_ty.primitive_bitwidth // 8
    rows = (place.end - place.start) // itemsize // value.columns
    shape = [base._implicit_cvt(extent) for extent in (rows, value.columns)]
    return base.interpreter_semantic.make_tensor_descriptor(
        base=pointer, shape=shape, strides=[shape[1], tl.constexpr(1)],
        block_shape=[tl.constexpr(extent) for extent in block], padding_option="zero",
    )  # fmt: skip


def serve() -> None:
    """Answers launches until there are no more."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a kernel prints
    _install()
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = execute(*request)
        except Exception:
            answer = traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    assert triton.knobs.runtime.interpret, "start with TRITON_INTERPRET=1"
    serve()
