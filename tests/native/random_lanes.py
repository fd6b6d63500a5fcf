"""Random launches over lanes of every kind: running, finished, stale, out of range, too many.

Generators alone; `tests.ignition.cuda` runs them interpreted, `tests.gpu` on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.native import layer_cases, request_cases, sampling
from tests.native.launches import Case
from tests.native.states import STATE


def live(rng: np.random.Generator, case: Case) -> Case:
    """The case with some of its rows live, none, or more than there can be."""
    capacity = case.integers["capacity"]
    rows = int(rng.choice([-3, 0, 1, capacity - 1, capacity, capacity + 1, 2**31 - 1]))
    return case.with_operands(rows=np.array([rows], np.int32))


def distinct_slots(rng: np.random.Generator, case: Case, slots: int) -> Case:
    """The case with slots that are no two lanes', a few of them out of range."""
    count = len(case.operands["slot"])
    drawn = rng.permutation(max(slots, count))[:count].astype(np.int32)
    outside = rng.random(count) < 0.2
    drawn[outside] = rng.choice([-1, slots, -(2**31), 2**31 - 1], outside.sum())
    return case.with_operands(slot=drawn)


def hostile(rng: np.random.Generator, case: Case, names: Sequence[str]) -> Case:
    """Some numbers of these operands out of range, most of them not."""
    changed = {}
    for name in names:
        array = case.operands[name].copy()
        wrong = rng.random(array.shape) < 0.15
        array[wrong] = rng.choice([-(2**31), -1, 0, 4, 5, 12, 13, 2**31 - 1], wrong.sum())
        changed[name] = array
    return case.with_operands(**changed)


def scattered(rng: np.random.Generator, capacity: int, size: int) -> Case:
    """Indices that repeat, and some out of range."""
    case = request_cases.scatter_i32(rng, rows=capacity, capacity=capacity, size=size)
    index = rng.integers(-2, size + 2, capacity)
    index[rng.random(capacity) < 0.05] = rng.choice([-(2**31), 2**31 - 1])
    return case.with_operands(index=index.astype(np.int32))


def pending(rng: np.random.Generator, kernel: str, capacity: int, **extents: int) -> Case:
    """Running, finished and stale lanes."""
    case: Case = getattr(request_cases, kernel)(rng, rows=capacity, capacity=capacity, **extents)
    count = len(case.operands["slot"])
    state = case.operands["state"].view(STATE).reshape(-1)
    state["finished"] = rng.choice([0, 0, 1, 2], count)
    state["consumed"] = rng.integers(0, 2**31, count)
    case = distinct_slots(rng, case, count)
    held = np.clip(case.operands["slot"], 0, count - 1)
    generation = state["generation"][held] + rng.choice([0, 0, 0, 1], count)
    # A slot that isn't there reads as zeros, generation 0 included.
    generation[rng.random(count) < 0.1] = 0
    return case.with_operands(generation=generation.astype(np.int32))


def committed(rng: np.random.Generator, capacity: int, *, prompt: bool = True) -> Case:
    """Lanes that end by a token, by their length, by both and not at all."""
    case = pending(rng, "commit", capacity)
    state = case.operands["state"].view(STATE).reshape(-1)
    state["consumed"] = rng.integers(0, 1000, capacity)
    state["emitted"] = rng.integers(0, 4, capacity)
    state["output_limit"] = rng.integers(0, 5, capacity)
    state["eos_ids"] = rng.integers(-1, 30, (capacity, 16))
    operands = {
        **case.operands,
        "query_length": rng.integers(0, 9, capacity).astype(np.int32),
        "sampled": rng.choice([0, 1, 1, 5], capacity).astype(np.int32),
        "tokens": rng.integers(-1, 50, capacity).astype(np.int32),
    }
    if not prompt:
        operands = {n: a for n, a in operands.items() if n not in ("query_length", "sampled")}
    return Case("commit", operands, case.integers)


def selected(rng: np.random.Generator, capacity: int, packed: int, width: int) -> Case:
    """Lanes without rows, lanes that don't sample, lengths that end past the packed rows."""
    case = layer_cases.select_last(
        rng, rows=capacity, capacity=capacity, packed_capacity=packed, width=width
    )
    return _chosen(rng, case, capacity, packed)


def attending(
    rng: np.random.Generator, capacity: int, packed: int, width: int, elements: int, dtype: int
) -> Case:
    """The same, of rows that have yet to attend."""
    case = layer_cases.select_attending(
        rng, rows=capacity, capacity=capacity, packed_capacity=packed, width=width,
        elements=elements, dtype=dtype,
    )  # fmt: skip
    return _chosen(rng, case, capacity, packed)


def _chosen(rng: np.random.Generator, case: Case, capacity: int, packed: int) -> Case:
    lengths = rng.integers(0, max(2, 3 * packed // capacity), capacity)
    strange = rng.random(capacity) < 0.1
    lengths[strange] = rng.choice([-(2**31), -1, 0, packed, packed + 1], strange.sum())
    if rng.random() < 0.2:
        lengths[rng.integers(capacity)] = 2**31 - 1
    return case.with_operands(
        query_length=lengths.astype(np.int32),
        sample=rng.choice([0, 1, 1, -1], capacity).astype(np.int32),
    )


def counted(rng: np.random.Generator, capacity: int, vocab: int) -> Case:
    """Lanes that run or don't, sample or don't, with and without penalties and bad words."""
    case = sampling.count_sampled(rng, capacity=capacity, vocab=vocab)
    state = case.operands["state"].view(STATE).reshape(-1)
    state["finished"] = rng.choice([0, 0, 0, 1, 2], capacity)
    state["repetition_penalty"] = rng.choice([0.0, 1.0, -0.0, 0.5, np.nan], capacity)
    state["frequency_penalty"] = rng.choice([0.0, 0.0, 1.0], capacity)
    case.operands["token_counts"][:, 0] = 2**31 - 1  # counts wrap
    case = distinct_slots(rng, case, capacity)
    held = np.clip(case.operands["slot"], 0, capacity - 1)
    return case.with_operands(
        generation=(state["generation"][held] + rng.choice([0, 0, 0, 1], capacity)).astype("i4"),
        sampled=rng.choice([0, 1, 1, -1], capacity).astype(np.int32),
        tokens=rng.choice([-1, 0, 0, 1, vocab - 1, vocab], capacity).astype(np.int32),
    )
