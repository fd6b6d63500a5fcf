"""Random launches of the kernels that only CUDA targets have, and what the reference makes of any
launch of a forward pass.

Outputs are poisoned with NaN and cache cells that no row sees hold NaN, so whatever reads or
leaves something it shouldn't shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helios.kernels.catalogue import BY_NAME
from helios.kernels.operand_types import DTYPE, FORMAT, OPERAND_TYPES, OUT_FORMAT, PACKING
from helios.runtime.manifest import DType
from helios.runtime.reference.kernels import KERNELS
from helios.runtime.reference.unpack import PackedMatrix
from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT, F32, decode, from_f16, row_nbytes, to_f16
from tests.native.states import i32

PAGE_TOKENS = 64
F16_NAN = 0x7E00


def rope_and_cache_f16(
    rng: np.random.Generator,
    *,
    rows: int,
    capacity: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    norms: bool = False,
    positions: Sequence[int] = (),
    slots: int = 3,
    table_pages: int = 4,
) -> Case:
    """`positions` are those of the first rows, the others are random; slots come in turn."""
    placed = rng.choice(table_pages * PAGE_TOKENS, capacity, replace=False).astype(np.int32)
    placed[: len(positions)] = positions
    pages = slots * table_pages + 2
    table = rng.permutation(pages)[: slots * table_pages].astype(np.int32)
    plane = np.full((pages, kv_heads, PAGE_TOKENS, head_dim), F16_NAN, np.uint16)
    exponent = np.arange(head_dim // 2) / (head_dim // 2)
    heads = q_heads + 2 * kv_heads
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "qkv": rng.standard_normal((capacity, heads * head_dim), np.float32) * 2,
        "positions": placed,
        "slot": (np.arange(capacity) % slots).astype(np.int32),
        "page_table": table.reshape(slots, table_pages),
        "inverse_frequency": (10000.0**-exponent).astype(np.float32),
        "queries": np.full((capacity, q_heads * head_dim), F16_NAN, np.uint16),
        "k_plane": plane,
        "v_plane": plane.copy(),
    }
    if norms:
        operands["q_norm"], operands["k_norm"] = rng.standard_normal((2, head_dim), np.float32)
    attributes = {
        "capacity": capacity,
        "q_heads": q_heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "page_tokens": PAGE_TOKENS,
        "table_pages": table_pages,
    }
    floats = {"epsilon": 1e-6, "attention_factor": 1.25}
    return Case("rope_and_cache_f16", operands, attributes, floats)


def attention_f16(
    rng: np.random.Generator,
    *,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    contexts: Sequence[int],
    lengths: Sequence[int] = (),
    capacity: int | None = None,
    lane_capacity: int | None = None,
    window: int = 0,
    format_: int = 1,
    table_pages: int = 6,
) -> Case:
    """A request for each of `contexts`, which counts its tokens, 0 for an inert one; the last
    `lengths` of them are its rows, or the last one where there are none. Room is left for other
    rows and lanes with a capacity above what is live."""
    requests = len(contexts)
    by_lanes = bool(lengths)
    counts = list(lengths) if by_lanes else [1] * requests
    rows = sum(counts)
    capacity = rows if capacity is None else capacity
    positions = [
        p
        for context, count in zip(contexts, counts, strict=True)
        for p in (range(context - count, context) if context else [-1] * count)
    ]
    of_rows = np.repeat(np.arange(requests), counts)
    slots = requests + 1
    slot = rng.permutation(slots)[:requests]
    pages = slots * table_pages + 1
    table = rng.permutation(pages)[: slots * table_pages].astype(np.int32)
    table = table.reshape(slots, table_pages)
    planes = []
    for _ in range(2):
        plane = np.full((pages, kv_heads, PAGE_TOKENS, head_dim), F16_NAN, np.uint16)
        for request, context in enumerate(contexts):
            for p in range(context):
                cell = plane[table[slot[request], p // PAGE_TOKENS], :, p % PAGE_TOKENS]
                cell[:] = to_f16(rng.standard_normal((kv_heads, head_dim), np.float32))
        planes.append(plane)

    def filled(values: Array, fill: int) -> Array:
        rest = np.full(capacity - rows, fill)
        return np.concatenate([values, rest]).astype(np.int32)

    queries = to_f16(rng.standard_normal((capacity, q_heads * head_dim), np.float32))
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "queries": queries,
        "positions": filled(np.array(positions), 0),
        "slot": filled(slot[of_rows], 1 << 30),
        "page_table": table,
        "k_plane": planes[0],
        "v_plane": planes[1],
        "out": np.full((capacity, row_nbytes(format_, q_heads * head_dim)), 0xFF, np.uint8),
    }
    lane_capacity = (lane_capacity or requests) if by_lanes else 0
    if by_lanes:
        operands["lanes"] = i32(requests)
        beyond = [1 << 20] * (lane_capacity - requests)
        operands["query_length"] = np.array([*counts, *beyond], np.int32)
    attributes = {
        "capacity": capacity,
        "lane_capacity": lane_capacity,
        "q_heads": q_heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "page_tokens": PAGE_TOKENS,
        "table_pages": table_pages,
        "window": window,
        "format": format_,
    }
    return Case("attention_f16", operands, attributes, {"scale": head_dim**-0.5})


def values(case: Case, name: str, array: Array) -> F32 | Array:
    """An operand's values: f32 of whatever float format it has, integers as they are."""
    kind = OPERAND_TYPES[case.kernel][name]
    if kind in (FORMAT, OUT_FORMAT):
        form = case.integers[kind]
        rows = array.reshape(case.integers["capacity"], -1)
        return decode(rows, form, rows.shape[1] // row_nbytes(form, 1)).reshape(-1)
    if are_f16(case, name, array):
        return from_f16(array.reshape(-1))
    return array.reshape(-1)


def are_f16(case: Case, name: str, array: Array) -> bool:
    """Whether an operand's elements are f16 to compute with; where a launch only copies elements of
    some type, bits that other launches compute with are given as such, u16."""
    kind = OPERAND_TYPES[case.kernel][name]
    return kind == "f16" or (kind == DTYPE and array.dtype == np.uint16)


def expected(case: Case) -> dict[str, Array]:
    """The values of every written operand as the reference leaves them."""
    spec = BY_NAME[case.kernel]
    given: list[Array | PackedMatrix | None] = []
    written = {}
    for operand in spec.operands:
        if operand.name not in case.operands:
            given.append(None)
        elif OPERAND_TYPES[case.kernel][operand.name] == PACKING:
            raw = case.operands[operand.name].reshape(-1).view(np.uint8)
            given.append(PackedMatrix(operand.name, raw, DType.BF16))
        else:
            array = values(case, operand.name, case.operands[operand.name]).copy()
            if "w" in operand.access:
                written[operand.name] = array
            elif operand.name in ("k_plane", "v_plane"):
                array = np.nan_to_num(array)  # the reference multiplies by what no row sees
            given.append(array)
    with np.errstate(invalid="ignore"):
        KERNELS[case.kernel](*given, **case.integers, **case.floats)
    return written


def weigh(
    rng: np.random.Generator,
    *,
    rows: int,
    capacity: int,
    width: int,
    block: int,
    whole: bool = False,
) -> Case:
    """Rows to weigh, into one sum each where it is `whole`; zeros, tiny and huge ones among the
    first."""
    x = rng.standard_normal((capacity, width), np.float32) * 3
    x[1:4] *= np.array([0, 1e-12, 1e12], np.float32)[: max(0, capacity - 1), None]
    blocks = 1 if whole else -(-width // block)
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "x": x,
        "weight": rng.standard_normal(width, np.float32),
        "out": np.full((capacity, row_nbytes(BF16_FORMAT, width)), 0xFF, np.uint8),
        "squares": np.full((capacity, blocks), np.nan, np.float32),
    }
    integers = {"capacity": capacity, "width": width, "format": BF16_FORMAT}
    return Case("weigh", operands, integers | {"block": block, "blocks": blocks})


def weighed(case: Case, weighing: Case, epsilon: float = 1e-5) -> Case:
    """A projection (`linear` that adds to nothing, `linear_silu_mul`) of the rows that a `weigh`
    leaves."""
    integers = {name: n for name, n in case.integers.items() if name != "accumulate"}
    operands = {
        **case.operands,
        **{name: weighing.operands[name] for name in ("rows", "squares")},
        "x": weighing.operands["out"],
    }
    integers["blocks"] = weighing.integers["blocks"]
    return Case(f"{case.kernel}_weighed", operands, integers, {"epsilon": epsilon})
