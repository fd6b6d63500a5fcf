"""Random launches that a round begins and ends with, one after the other.

One array that is several launches' operand is one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.native import cuda_cases, layer_cases, request_cases, sampling
from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT, Packing
from tests.native.random_lanes import distinct_slots
from tests.native.states import STATE, i32

VOCABULARY = 43


def page_deltas(rng: np.random.Generator, entries: int) -> Case:
    """Entries of a page table that nothing else looks at."""
    case = request_cases.scatter_i32(rng, rows=entries, capacity=70, size=90)
    return case.with_operands(index=rng.integers(-1, 92, 70).astype(np.int32))


def forward(
    rng: np.random.Generator, tokens: Array, rows: Array, capacity: int, width: int, format_: int,
    packing: Packing,
) -> tuple[Case, Case]:  # fmt: skip
    """The embedding of `tokens` and its norm."""
    extents = {"rows": 0, "capacity": capacity, "width": width}
    embed = layer_cases.embed(rng, packing, vocab=VOCABULARY, **extents)[0]
    embed = embed.with_operands(tokens=tokens, rows=rows)
    norm = layer_cases.rms_norm(rng, format_=format_, **extents)
    return embed, norm.with_operands(x=embed.operands["out"], rows=rows)


def weighing(cases: Sequence[Case], rng: np.random.Generator, *, whole: bool) -> list[Case]:
    """The same beginning with rows that are weighed instead of normed."""
    *before, norm = cases
    extents = {name: norm.integers[name] for name in ("capacity", "width")}
    weigh = cuda_cases.weigh(rng, rows=1, block=16, whole=whole, **extents)
    given = {name: norm.operands[name] for name in ("rows", "x", "weight")}
    return [*before, weigh.with_operands(**given)]


def live(rng: np.random.Generator, capacity: int) -> Array:
    """A count of live rows."""
    return i32(int(rng.choice([-1, 0, 1, capacity // 2, capacity])))


def running(rng: np.random.Generator, case: Case) -> Case:
    """The launch over lanes that run, have finished or are stale."""
    state = case.operands["state"].view(STATE).reshape(-1)
    count = len(state)
    state["finished"] = rng.choice([0, 0, 0, 1], count)
    state["pending_token"] = rng.integers(-1, VOCABULARY + 1, count)
    case = distinct_slots(rng, case, count)
    held = np.clip(case.operands["slot"], 0, count - 1)
    generation = state["generation"][held] + rng.choice([0, 0, 0, 1], count)
    return case.with_operands(generation=generation.astype(np.int32))


def decode(
    rng: np.random.Generator, capacity: int, width: int, format_: int = BF16_FORMAT,
    packing: Packing = Packing.ROWS_BF16,
) -> list[Case]:  # fmt: skip
    """What a decode round begins with."""
    pending = running(rng, request_cases.load_pending(rng, rows=0, capacity=capacity))
    pending = pending.with_operands(rows=live(rng, capacity))
    tokens, rows = pending.operands["tokens"], pending.operands["rows"]
    entries = int(rng.choice([0, 1, 40, 70]))
    return [
        page_deltas(rng, entries), pending,
        *forward(rng, tokens, rows, capacity, width, format_, packing),
    ]  # fmt: skip


def mixed(
    rng: np.random.Generator, capacity: int, width: int, packing: Packing = Packing.ROWS_BF16
) -> list[Case]:
    """What a mixed round begins with."""
    merge = request_cases.merge_pending(
        rng, rows=0, capacity=capacity, lanes=3, decode_lanes=int(rng.choice([-1, 0, 2, 3, 9]))
    )
    merge = running(rng, merge).with_operands(
        rows=live(rng, capacity), tokens=rng.integers(-1, VOCABULARY + 1, capacity).astype("i4")
    )
    tokens, rows = merge.operands["out_tokens"], merge.operands["rows"]
    return [
        page_deltas(rng, 5),
        merge,
        *forward(rng, tokens, rows, capacity, width, BF16_FORMAT, packing),
    ]


def prefill(
    rng: np.random.Generator, capacity: int, width: int, packing: Packing = Packing.ROWS_BF16
) -> list[Case]:
    """What a prefill round begins with."""
    tokens = rng.integers(-1, VOCABULARY + 1, capacity).astype(np.int32)
    rows = live(rng, capacity)
    return [page_deltas(rng, 5), *forward(rng, tokens, rows, capacity, width, BF16_FORMAT, packing)]


def ending(rng: np.random.Generator, capacity: int, *, prompt: bool) -> list[Case]:
    """`count_sampled` and `commit` of lanes whose penalties, bad words and ends differ."""
    count = sampling.count_sampled(rng, capacity=capacity, vocab=VOCABULARY)
    count = running(rng, count).with_operands(
        rows=live(rng, capacity), sampled=rng.choice([0, 1, 1], capacity).astype(np.int32)
    )
    state = count.operands["state"].view(STATE).reshape(-1)
    state["output_limit"], state["emitted"] = 3, rng.integers(0, 3, capacity)
    state["eos_ids"] = rng.integers(-1, VOCABULARY, (capacity, 16))
    commit = request_cases.commit(rng, rows=0, capacity=capacity)
    shared = ("rows", "slot", "generation", "sampled", "tokens", "state")
    commit = commit.with_operands(**{name: count.operands[name] for name in shared})
    if prompt:
        return [count, commit]
    absent = ("sampled", "query_length")
    return [
        Case(c.kernel, {n: a for n, a in c.operands.items() if n not in absent}, c.integers)
        for c in (count, commit)
    ]
