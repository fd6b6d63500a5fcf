"""Random launches of the kernels that move requests and sample and score tokens."""

from __future__ import annotations

import numpy as np

from helios.kernels.catalogue import TOP_CAPACITY
from tests.native.launches import Array, Case
from tests.native.states import STATE as STATE
from tests.native.states import i32, state_bytes, states

LANE_FIELDS = (
    "slot", "generation", "emitted", "consumed", "finish", "draft_cursor", "model_reserved",
    "offered", "accepted", "error", "zero0", "zero1",
)  # fmt: skip
LANE = np.dtype([(name, "<i4") for name in LANE_FIELDS])


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
