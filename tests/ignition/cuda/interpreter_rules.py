"""What the interpreter does otherwise than Triton's own: accesses are checked, and values are those
of a GPU. `interpreter` installs it before any kernel is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from tests.ignition.cuda.placed_memory import Memory

Array = NDArray[Any]


@dataclass
class Current:
    """The launches that are being interpreted."""

    memory: Memory = field(default_factory=Memory)


current = Current()


def install() -> None:
    """Puts checks around the interpreter's accesses, and mends what it computes otherwise than a
    GPU: bf16 is rounded to nearest even, products are added in an order that no tile decides,
    exponentials don't depend on their neighbours, and a condition stays one."""
    loads, stores = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    adds, swaps = InterpreterBuilder.create_atomic_rmw, InterpreterBuilder.create_atomic_cas
    casts = InterpreterBuilder.cast_impl

    def size(pointers: Any) -> int:
        return max(1, pointers.get_element_ty().primitive_bitwidth // 8)

    def masked_load(
        self: Any, ptrs: Any, mask: Any, other: Any, cache_policy: Any, is_volatile: Any
    ) -> Any:
        current.memory.check(ptrs.data, size(ptrs), mask.data, writing=False)
        return loads(self, ptrs, mask, other, cache_policy, is_volatile)

    def masked_store(self: Any, ptrs: Any, value: Any, mask: Any, cache_policy: Any) -> Any:
        current.memory.check(ptrs.data, size(ptrs), mask.data, writing=True)
        return stores(self, ptrs, value, mask, cache_policy)

    def atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        current.memory.check(ptr.data, size(ptr), mask.data, writing=True)
        return adds(self, op, ptr, val, mask, sem, scope)

    def atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        current.memory.check(ptr.data, size(ptr), np.ones(ptr.data.shape, np.bool_), writing=True)
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
        return TensorHandle(_products_added(_wide(a), _wide(b), d.data), d.dtype.scalar)

    def exactly(function: Any) -> Any:
        """Numpy's own in f32 differs by a bit with an element's place in an array."""

        def unary(self: Any, arg: Any) -> Any:
            return TensorHandle(
                function(arg.data.astype(np.float64)).astype(arg.data.dtype), arg.dtype.scalar
            )

        return unary

    def splat(self: Any, ret_ty: Any, arg: Any) -> Any:
        # What a comparison gave is bool, though it is declared as what was compared.
        data = np.full(ret_ty.shape, arg.data.reshape(-1)[0], dtype=arg.data.dtype)
        return TensorHandle(data, arg.dtype.scalar)

    replacements: dict[str, Any] = {
        "create_masked_load": masked_load, "create_masked_store": masked_store,
        "create_atomic_rmw": atomic_rmw, "create_atomic_cas": atomic_cas, "cast_impl": cast,
        "create_fp_to_fp": fp_to_fp, "create_dot": dot, "create_splat": splat,
        "create_exp": exactly(np.exp), "create_exp2": exactly(np.exp2),
        "create_log": exactly(np.log), "create_log2": exactly(np.log2),
    }  # fmt: skip
    for name, function in replacements.items():
        assert hasattr(InterpreterBuilder, name), name
        setattr(InterpreterBuilder, name, function)
    # Kernels take these names from here when their modules are imported, which is later.
    extra: Any = import_module("triton.language.extra.cuda")
    extra.gdc_wait, extra.gdc_launch_dependents = _gdc_wait, _gdc_launch_dependents
    # Instructions that only a GPU has: some convert, some fill a cache.
    codes: Any = import_module("ignition.kernels.cuda.codes")
    plain: Any = import_module("tests.ignition.cuda.interpreted_codes")
    codes.int8_numbers, codes.e4m3_numbers = plain.int8_numbers, plain.e4m3_numbers
    prefetch: Any = import_module("ignition.kernels.cuda.prefetch")
    prefetch.bring_rows = prefetch.bring_blocks = _bring


# Products that tensor cores add to a sum at a time.
_TOGETHER = 16


def _products_added(left: Array, right: Array, sums: Array) -> Array:
    """sums + left · right, f32: sixteen products at a time, as docs/cuda.md has it, each time with
    one rounding. No shape changes an element's sum."""
    for first in range(0, left.shape[-1], _TOGETHER):
        added = sums.astype(np.float64)
        for k in range(first, min(first + _TOGETHER, left.shape[-1])):
            added += left[..., :, k, None] * right[..., k, None, :]
        sums = added.astype(np.float32)
    return sums


def _wide(handle: Any) -> Array:
    data = _from_bf16(handle.data) if handle.dtype.scalar == tl.bfloat16 else handle.data
    wide: Array = data.astype(np.float64)
    return wide


def _bring(*_arguments: Any, **_constants: Any) -> None:
    pass


def _gdc_wait() -> None:
    current.memory.waited = True


def _gdc_launch_dependents() -> None:
    current.memory.now.hasty |= not current.memory.waited


def _from_bf16(data: Array) -> Array:
    return (np.asarray(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


def _to_bf16(data: Array) -> Array:
    bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF).astype(np.uint32)) >> 16
    return np.where(np.isnan(data), 0x7FC0, rounded).astype(np.uint16)
