"""Random launches of every kernel, small enough for guard pages and invariance tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import TOP_CAPACITY
from tests.native import sampling
from tests.native.harness import Array, Case
from tests.native.packings import (
    BF16_FORMAT,
    F32_FORMAT,
    FORMATS,
    Q8_FORMAT,
    Q16_FORMAT,
    QUANTISED,
    QUANTISED_FORMATS,
    Packed,
    Packing,
    encode,
    random_packed,
    row_nbytes,
    to_f16,
)
from tests.native.states import STATE as STATE
from tests.native.states import i32, state_bytes, states

PAGE_TOKENS = 32
LANE_FIELDS = (
    "slot", "generation", "emitted", "consumed", "finish", "draft_cursor", "model_reserved",
    "offered", "accepted", "error", "zero0", "zero1",
)  # fmt: skip
LANE = np.dtype([(name, "<i4") for name in LANE_FIELDS])


def activation_formats(packing: Packing) -> tuple[int, ...]:
    """The formats that a packing's products take."""
    if packing in QUANTISED:
        return QUANTISED_FORMATS
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


def sample(
    rng: np.random.Generator,
    *,
    rows: int,
    capacity: int,
    vocab: int,
    stride: int | None = None,
    **parameters: float,
) -> Case:
    """Slot i is lane i's; every lane samples with the given parameters and its own seed."""
    stride = vocab if stride is None else stride
    state = states(capacity)
    state["seed"] = rng.integers(0, 2**63, capacity)
    for name, value in parameters.items():
        state[name] = value
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "slot": np.arange(capacity, dtype=np.int32),
        "state": state_bytes(state),
        "logits": rng.standard_normal((capacity, stride), np.float32) * 3,
        "tokens": np.full(capacity, -5, np.int32),
        "logprobs": np.full(capacity, 5, np.float32),
    }
    attributes = {"capacity": capacity, "vocab": vocab, "stride": stride}
    return Case("sample", operands, attributes)


def scatter_i32(rng: np.random.Generator, *, rows: int, capacity: int, size: int) -> Case:
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "index": rng.permutation(size)[:capacity].astype(np.int32),
        "value": rng.integers(0, 1000, capacity).astype(np.int32),
        "target": np.full(size, -5, np.int32),
    }
    return Case("scatter_i32", operands, {"capacity": capacity})


def initialize_requests(rng: np.random.Generator, *, rows: int, capacity: int) -> Case:
    operands: dict[str, Array] = {"rows": i32(rows)}
    operands["slot"] = rng.permutation(capacity).astype(np.int32)
    for name in ("generation", "consumed", "emitted", "output_limit", "top_k"):
        operands[name] = rng.integers(0, 1000, capacity).astype(np.int32)
    for name in ("temperature", "top_p", "min_p"):
        operands[name] = rng.random(capacity, np.float32)
    operands["seed"] = rng.integers(0, 2**32, (capacity, 2)).astype(np.uint32)
    operands["eos_ids"] = rng.integers(-1, 1000, (capacity, 16)).astype(np.int32)
    operands["state"] = np.full((capacity, 128), 7, np.uint8)
    return Case("initialize_requests", operands, {"capacity": capacity})


def load_pending(rng: np.random.Generator, *, rows: int, capacity: int) -> Case:
    state = states(capacity)
    state["finished"][1::3] = 1
    state["pending_token"] = rng.integers(0, 1000, capacity)
    generation = np.arange(capacity, dtype=np.int32) + 1
    generation[2::3] += 1
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "slot": np.arange(capacity, dtype=np.int32),
        "generation": generation,
        "state": state_bytes(state),
        "tokens": np.full(capacity, -5, np.int32),
        "positions": np.full(capacity, -5, np.int32),
    }
    return Case("load_pending", operands, {"capacity": capacity})


def commit(rng: np.random.Generator, *, rows: int, capacity: int) -> Case:
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "slot": np.arange(capacity, dtype=np.int32),
        "generation": np.arange(capacity, dtype=np.int32) + 1,
        "query_length": rng.integers(1, 9, capacity).astype(np.int32),
        "sampled": np.ones(capacity, np.int32),
        "tokens": rng.integers(0, 50, capacity).astype(np.int32),
        "logprobs": -rng.random(capacity, np.float32),
        "state": state_bytes(states(capacity)),
        "lanes": np.full((capacity, 12), 7, np.int32),
        "out_tokens": np.full((capacity, 1), -5, np.int32),
        "out_logprobs": np.full((capacity, 1), 5, np.float32),
    }
    return Case("commit", operands, {"capacity": capacity})


def set_pending(rng: np.random.Generator, *, rows: int, capacity: int) -> Case:
    state = states(capacity)
    state["finished"][1::3] = 1
    generation = np.arange(capacity, dtype=np.int32) + 1
    generation[2::3] += 1
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "slot": np.arange(capacity, dtype=np.int32),
        "generation": generation,
        "token": rng.integers(1000, 2000, capacity).astype(np.int32),
        "state": state_bytes(state),
    }
    return Case("set_pending", operands, {"capacity": capacity})


def merge_pending(
    rng: np.random.Generator, *, rows: int, capacity: int, lanes: int, decode_lanes: int
) -> Case:
    pending = load_pending(rng, rows=lanes, capacity=lanes).operands
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "decode_lanes": i32(decode_lanes),
        "slot": pending["slot"],
        "generation": pending["generation"],
        "state": pending["state"],
        "tokens": rng.integers(1000, 2000, capacity).astype(np.int32),
        "positions": rng.integers(1000, 2000, capacity).astype(np.int32),
        "out_tokens": np.full(capacity, -5, np.int32),
        "out_positions": np.full(capacity, -5, np.int32),
    }
    return Case("merge_pending", operands, {"capacity": capacity, "lanes": lanes})


def slice_rows(*, rows: int, capacity: int, start: int, limit: int) -> Case:
    operands: dict[str, Array] = {"rows": i32(rows), "out": i32(-5)}
    return Case("slice_rows", operands, {"capacity": capacity, "start": start, "limit": limit})


def score(
    rng: np.random.Generator, *, rows: int, capacity: int, vocab: int, stride: int | None = None
) -> Case:
    stride = vocab if stride is None else stride
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "target": rng.integers(-1, vocab + 1, capacity).astype(np.int32),
        "logits": rng.standard_normal((capacity, stride), np.float32) * 3,
        "out": np.full(capacity, 5, np.float32),
    }
    attributes = {"capacity": capacity, "vocab": vocab, "stride": stride}
    return Case("score", operands, attributes)


def score_ranked(rng: np.random.Generator, **extents: int) -> Case:
    """As `score`; some of the rows want no alternatives."""
    case = score(rng, **extents)
    capacity = case.integers["capacity"]
    operands = case.operands | {
        "wanted": rng.choice([0, 1, 7, TOP_CAPACITY], capacity).astype(np.int32),
        "rank": np.full(capacity, 5, np.int32),
        "top_tokens": np.full((capacity, TOP_CAPACITY), 5, np.int32),
        "top_logprobs": np.full((capacity, TOP_CAPACITY), 5, np.float32),
    }
    return Case("score_ranked", operands, case.integers)


# A type of each size, by the schema's number of it.
ELEMENTS: dict[int, type[np.generic]] = {1: np.uint8, 7: np.float16, 9: np.float32, 6: np.uint64}


def page_copy(
    rng: np.random.Generator,
    kernel: str,
    *,
    rows: int,
    capacity: int,
    elements: int,
    dtype: int,
    slots: int = 4,
    table_pages: int = 3,
    page_tokens: int = 16,
    saved_rows: int = 5,
) -> Case:
    """`save_page` or `load_page` with endpoints inside pages, each lane with a slot and row of its
    own as far as there are so many."""
    pages = slots * table_pages
    whole = rng.integers(0, table_pages, capacity) * page_tokens

    def content(count: int) -> Array:
        size = count * elements * np.dtype(ELEMENTS[dtype]).itemsize
        return rng.integers(0, 256, size).astype(np.uint8).view(ELEMENTS[dtype])

    operands: dict[str, Array] = {
        "rows": i32(rows),
        "slot": (np.arange(capacity) % slots).astype(np.int32),
        "endpoint": (whole + rng.integers(1, page_tokens, capacity)).astype(np.int32),
        "row": np.resize(rng.permutation(saved_rows), capacity).astype(np.int32),
        "page_table": rng.permutation(pages).astype(np.int32).reshape(slots, table_pages),
        "plane": content(pages).reshape(pages, elements),
        "saved": content(saved_rows).reshape(saved_rows, elements),
    }
    attributes = {
        "capacity": capacity,
        "page_tokens": page_tokens,
        "table_pages": table_pages,
        "elements": elements,
        "dtype": dtype,
    }
    return Case(kernel, operands, attributes)


def copy_rows(
    rng: np.random.Generator, *, rows: int, capacity: int, elements: int, dtype: int, count: int
) -> Case:
    """Rows of one buffer of `count`; sources and destinations may meet."""
    size = count * elements * np.dtype(ELEMENTS[dtype]).itemsize
    content = rng.integers(0, 256, size).astype(np.uint8).view(ELEMENTS[dtype])
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "source": rng.integers(-1, count + 1, capacity).astype(np.int32),
        "destination": rng.integers(-1, count + 1, capacity).astype(np.int32),
        "buffer": content.reshape(count, elements),
    }
    return Case("copy_rows", operands, {"capacity": capacity, "elements": elements, "dtype": dtype})


def _first(build: Callable[..., tuple[Any, ...]]) -> Callable[..., Case]:
    """A builder of the launch alone."""

    def build_case(rng: np.random.Generator, **extents: int) -> Case:
        case = build(rng, **extents)[0]
        assert isinstance(case, Case)
        return case

    return build_case


def _tuned(build: Callable[[np.random.Generator], Case], rng: np.random.Generator) -> Case:
    """The launch with a blocking that isn't the default."""
    case = build(rng)
    operands = {**case.operands, "tuning": i32(2)}
    return Case(f"{case.kernel}_tuned", operands, case.integers, case.floats)


def every_kernel() -> dict[str, Callable[[np.random.Generator], Case]]:
    """Named launches that together touch every kernel, packing and format, with ragged extents."""
    sampled = partial(sample, rows=3, capacity=3, vocab=1043)
    made: dict[str, Callable[[np.random.Generator], Case]] = {
        "scatter_i32": partial(scatter_i32, rows=5, capacity=5, size=9),
        "initialize_requests": partial(initialize_requests, rows=3, capacity=3),
        "load_pending": partial(load_pending, rows=7, capacity=7),
        "select_last": partial(select_last, rows=5, capacity=5, packed_capacity=10, width=7),
        "sample_greedy": partial(sampled, temperature=0.0),
        "sample_all": partial(sampled, stride=1050, temperature=0.8, min_p=0.01),
        "sample_prefix": partial(sampled, temperature=0.8, top_k=40, top_p=0.9),
        "sample_nucleus": partial(sampled, temperature=2.0, top_p=0.97),
        "commit": partial(commit, rows=3, capacity=3),
        "set_pending": partial(set_pending, rows=7, capacity=7),
        "merge_pending": partial(merge_pending, rows=9, capacity=9, lanes=4, decode_lanes=3),
        "slice_rows": lambda rng: slice_rows(rows=9, capacity=9, start=4, limit=5),
        "score": partial(score, rows=5, capacity=5, vocab=1043),
        "score_ranked": partial(score_ranked, rows=5, capacity=5, vocab=1043),
        **sampling.every_kernel(),
        "score_strided": partial(score, rows=5, capacity=5, vocab=300, stride=333),
    }
    for dtype in ELEMENTS:
        for kernel in ("save_page", "load_page"):
            name = kernel if dtype == 7 else f"{kernel}_{dtype}"
            made[name] = partial(
                page_copy, kernel=kernel, rows=4, capacity=4, elements=77, dtype=dtype
            )
        name = "copy_rows" if dtype == 7 else f"copy_rows_{dtype}"
        made[name] = partial(copy_rows, rows=4, capacity=4, elements=77, dtype=dtype, count=9)
    for format_, width in ((F32_FORMAT, 77), (BF16_FORMAT, 77), (Q8_FORMAT, 96), (Q16_FORMAT, 96)):
        made[f"rms_norm_{format_}"] = partial(
            rms_norm, format_=format_, rows=3, capacity=3, width=width
        )
    for packing in Packing:
        width = 64 if packing in QUANTISED else 38
        made[f"embed_{packing.name}"] = partial(
            _first(embed), packing=packing, rows=5, capacity=5, vocab=43, width=width
        )
        for format_ in activation_formats(packing):
            weights: dict[str, Any] = {"packing": packing, "format_": format_, "width": width}
            made[f"linear_{packing.name}_{format_}"] = partial(
                _first(linear), **weights, rows=9, capacity=9, outputs=87, bias=1, accumulate=1
            )
            for out_format in FORMATS:
                made[f"silu_{packing.name}_{format_}_{out_format}"] = partial(
                    _first(linear_silu_mul), **weights, out_format=out_format,
                    rows=9, capacity=9, outputs=96 if out_format in QUANTISED_FORMATS else 48,
                )  # fmt: skip
    many = {"rows": 70, "capacity": 70, "width": 64}
    made["linear_many_rows"] = partial(
        _first(linear), packing=Packing.TILE16_Q4_1, format_=Q8_FORMAT, outputs=87, **many
    )
    made["silu_many_rows"] = partial(
        _first(linear_silu_mul), packing=Packing.TILE16_BF16, format_=BF16_FORMAT,
        out_format=Q8_FORMAT, outputs=96, **many,
    )  # fmt: skip
    for name in ("linear_TILE16_BF16_1", "silu_TILE16_Q8_0_2_2"):
        made[f"{name}_tuned"] = partial(_tuned, made[name])
    for head_dim, page_tokens in ((64, 32), (38, 20), (128, 16)):
        extents: dict[str, Any] = {
            "q_heads": 6,
            "kv_heads": 2,
            "head_dim": head_dim,
            "page_tokens": page_tokens,
        }
        made[f"rope_{head_dim}_{page_tokens}"] = partial(
            rope_and_cache, rows=7, capacity=7, norms=True, **extents
        )
        for format_ in FORMATS:
            if format_ not in QUANTISED_FORMATS or 3 * head_dim % 32 == 0:
                made[f"attention_{head_dim}_{page_tokens}_{format_}"] = partial(
                    attention, rows=7, capacity=7, format_=format_, **extents
                )
    return made


EVERY_KERNEL = every_kernel()
