"""Random launches of the kernels that a forward pass is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.native.launches import Array, Case
from tests.native.packings import (
    BF16_FORMAT,
    BLOCK_FORMATS,
    BLOCKS,
    F32_FORMAT,
    Q8_PAIRS_FORMAT,
    ROWS,
    Packed,
    Packing,
    encode,
    from_f16,
    random_packed,
    row_nbytes,
    to_bf16,
    to_f16,
)
from tests.native.request_cases import ELEMENTS
from tests.native.states import STATE as STATE
from tests.native.states import i32

PAGE_TOKENS = 32


def activation_formats(packing: Packing) -> tuple[int, ...]:
    """The formats that a packing's products take."""
    if packing in BLOCKS:
        return BLOCK_FORMATS
    if packing is Packing.TILE16_Q4_PAIRS:
        return (Q8_PAIRS_FORMAT,)
    if packing in ROWS:
        return (BF16_FORMAT,)
    return (BF16_FORMAT, F32_FORMAT) if packing is Packing.TILE16_BF16 else (F32_FORMAT,)


def linear(
    rng: np.random.Generator,
    packing: Packing,
    format_: int,
    *,
    rows: int,
    capacity: int,
    width: int,
    outputs: int,
    bias: bool = False,
    accumulate: bool = False,
) -> tuple[Case, Packed, NDArray[np.float32]]:
    """A `linear` launch, its matrix, and its activation values before encoding."""
    matrix = random_packed(rng, packing, outputs, width)
    x = rng.standard_normal((capacity, width), np.float32)
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "x": encode(x, format_),
        "weight": matrix.data,
        "out": rng.standard_normal((capacity, outputs), np.float32),
    }
    if bias:
        operands["bias"] = rng.standard_normal(outputs, np.float32)
    attributes = {
        "capacity": capacity,
        "width": width,
        "outputs": outputs,
        "packing": packing,
        "format": format_,
        "accumulate": int(accumulate),
    }
    return Case("linear", operands, attributes), matrix, x


def linear_silu_mul(
    rng: np.random.Generator,
    packing: Packing,
    format_: int,
    out_format: int,
    *,
    rows: int,
    capacity: int,
    width: int,
    outputs: int,
) -> tuple[Case, Packed, NDArray[np.float32]]:
    matrix = random_packed(rng, packing, 2 * outputs, width)
    x = rng.standard_normal((capacity, width), np.float32)
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "x": encode(x, format_),
        "weight": matrix.data,
        "out": np.full((capacity, row_nbytes(out_format, outputs)), 7, np.uint8),
    }
    attributes = {
        "capacity": capacity,
        "width": width,
        "outputs": outputs,
        "packing": packing,
        "format": format_,
        "out_format": out_format,
    }
    return Case("linear_silu_mul", operands, attributes), matrix, x


def rms_norm(
    rng: np.random.Generator, format_: int, *, rows: int, capacity: int, width: int
) -> Case:
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "x": rng.standard_normal((capacity, width), np.float32) * 3,
        "weight": rng.standard_normal(width, np.float32),
        "out": np.full((capacity, row_nbytes(format_, width)), 7, np.uint8),
    }
    attributes = {"capacity": capacity, "width": width, "format": format_}
    return Case("rms_norm", operands, attributes, {"epsilon": 1e-5})


def embed(
    rng: np.random.Generator,
    packing: Packing,
    *,
    rows: int,
    capacity: int,
    vocab: int,
    width: int,
) -> tuple[Case, Packed]:
    table = random_packed(rng, packing, vocab, width)
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "tokens": rng.integers(0, vocab, capacity).astype(np.int32),
        "table": table.data,
        "out": rng.standard_normal((capacity, width), np.float32),
    }
    attributes = {"capacity": capacity, "vocab": vocab, "width": width, "packing": packing}
    return Case("embed", operands, attributes, {"scale": 1.5}), table


def heads(
    rng: np.random.Generator,
    kernel: str,
    *,
    rows: int,
    capacity: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int = PAGE_TOKENS,
    slots: int = 3,
    table_pages: int = 4,
) -> Case:
    """What `rope_and_cache` and `attention` have in common: rows of all slots in turn, positions
    that ascend within a slot, a page table of distinct shuffled pages."""
    pages = slots * table_pages
    positions = rng.integers(0, table_pages * page_tokens, capacity).astype(np.int32)
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "qkv": rng.standard_normal((capacity, (q_heads + 2 * kv_heads) * head_dim), np.float32),
        "positions": positions,
        "slot": (np.arange(capacity) % slots).astype(np.int32),
        "page_table": rng.permutation(pages).astype(np.int32).reshape(slots, table_pages),
        "k_plane": to_f16(
            rng.standard_normal((pages, kv_heads, head_dim, page_tokens), np.float32)
        ),
        "v_plane": to_f16(
            rng.standard_normal((pages, kv_heads, page_tokens, head_dim), np.float32)
        ),
    }
    attributes = {
        "capacity": capacity,
        "q_heads": q_heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "page_tokens": page_tokens,
        "table_pages": table_pages,
    }
    return Case(kernel, operands, attributes)


def rope_and_cache(
    rng: np.random.Generator,
    *,
    rows: int,
    capacity: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int = PAGE_TOKENS,
    norms: bool = False,
) -> Case:
    case = heads(
        rng, "rope_and_cache", rows=rows, capacity=capacity, q_heads=q_heads,
        kv_heads=kv_heads, head_dim=head_dim, page_tokens=page_tokens,
    )  # fmt: skip
    exponent = np.arange(head_dim // 2) / (head_dim // 2)
    extra: dict[str, Array] = {"inverse_frequency": (10000.0**-exponent).astype(np.float32)}
    if norms:
        extra["q_norm"] = rng.standard_normal(head_dim, np.float32)
        extra["k_norm"] = rng.standard_normal(head_dim, np.float32)
    floats = {"epsilon": 1e-6, "attention_factor": 1.25}
    return Case(case.kernel, {**case.operands, **extra}, case.integers, floats)


def attention(
    rng: np.random.Generator,
    *,
    rows: int,
    capacity: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int = PAGE_TOKENS,
    window: int = 0,
    format_: int = F32_FORMAT,
) -> Case:
    case = heads(
        rng, "attention", rows=rows, capacity=capacity, q_heads=q_heads, kv_heads=kv_heads,
        head_dim=head_dim, page_tokens=page_tokens,
    )  # fmt: skip
    out = np.full((capacity, row_nbytes(format_, q_heads * head_dim)), 7, np.uint8)
    attributes = {**case.integers, "window": window, "format": format_}
    return Case(case.kernel, {**case.operands, "out": out}, attributes, {"scale": head_dim**-0.5})


def paired(plane: Array) -> Array:
    """A plane with the elements of two neighbouring rows side by side: keys `[pages, Hkv, D, PT]`
    as `[…, D/2, PT, 2]`, values `[pages, Hkv, PT, D]` as `[…, PT/2, D, 2]`."""
    pages, kv_heads, rows, columns = plane.shape
    pairs = plane.reshape(pages, kv_heads, rows // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(3, 4))


def in_pairs(case: Case) -> Case:
    """`rope_and_cache` or `attention` as a launch of the kernel over planes of bf16 pairs."""
    planes = {
        name: paired(to_bf16(from_f16(case.operands[name]))) for name in ("k_plane", "v_plane")
    }
    operands = {**case.operands, **planes}
    return Case(f"{case.kernel}_bf16", operands, case.integers, case.floats)


def select_last(
    rng: np.random.Generator, *, rows: int, capacity: int, packed_capacity: int, width: int
) -> Case:
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "query_length": np.full(capacity, packed_capacity // capacity, np.int32),
        "sample": (np.arange(capacity) % 2 == 0).astype(np.int32),
        "x": rng.standard_normal((packed_capacity, width), np.float32),
        "selected_rows": i32(-5),
        "selected_lane": np.full(capacity, -5, np.int32),
        "out": np.full((capacity, width), -5, np.float32),
    }
    attributes = {"capacity": capacity, "packed_capacity": packed_capacity, "width": width}
    return Case("select_last", operands, attributes)


def select_attending(
    rng: np.random.Generator, *, elements: int, dtype: int, packed_capacity: int, **extents: int
) -> Case:
    """`select_last` of rows that have yet to attend: queries are any bytes."""
    case = select_last(rng, packed_capacity=packed_capacity, **extents)
    capacity = case.integers["capacity"]
    element = np.dtype(ELEMENTS[dtype])
    queries = rng.integers(0, 256, (packed_capacity, elements * element.itemsize), np.uint8)
    operands: dict[str, Array] = {
        **case.operands,
        "queries": queries.view(element),
        "positions": rng.integers(-1, 1 << 20, packed_capacity).astype(np.int32),
        "slot": rng.integers(-1, 1 << 20, packed_capacity).astype(np.int32),
        "out_queries": np.full((capacity, elements), 7).astype(element),
        "out_positions": np.full(capacity, -5, np.int32),
        "out_slot": np.full(capacity, -5, np.int32),
    }
    attributes = {**case.integers, "elements": elements, "dtype": dtype}
    return Case("select_attending", operands, attributes)
