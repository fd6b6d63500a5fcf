"""Trials of the kernels that move requests, rows and pages, and of launches that become one.

All of them are exact: numpy's bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from tests.gpu.trials import WHOLE, Build, Run, SameBits, Trial, only
from tests.native import random_lanes, request_cases, round_cases, sampling
from tests.native.launches import Case
from tests.native.packings import BF16_FORMAT, F32_FORMAT
from tests.native.random_lanes import distinct_slots, live

_SEEDS: Final = 4
_CAPACITIES: Final = (1, 5, 32, 70)
_F16: Final = 7
# Elements by type: rows that are copied by words of 32 bits and rows that aren't.
_ROWS: Final = ((_F16, 96), (_F16, 4160), (_F16, 77), (1, 30), (9, 48), (6, 3))
Cases = Callable[[np.random.Generator], list[Case]]


def _scattered(rng: np.random.Generator, capacity: int, size: int) -> Case:
    return live(rng, random_lanes.scattered(rng, capacity, size))


def _wide_scatter(rng: np.random.Generator) -> Case:
    """Enough room for entries that several programs share them out."""
    case = random_lanes.scattered(rng, 20_000, 9_000)
    return case.with_operands(rows=np.array([15_000], np.int32)).with_integers(capacity=20_000)


def _admitted(rng: np.random.Generator, capacity: int) -> Case:
    case = request_cases.initialize_requests(rng, rows=capacity, capacity=capacity)
    case.operands["temperature"].view(np.uint32)[0] = 0x7FA00001  # a NaN keeps its bits
    return live(rng, distinct_slots(rng, case, capacity))


def _pending(rng: np.random.Generator, kernel: str, capacity: int) -> Case:
    return live(rng, random_lanes.pending(rng, kernel, capacity))


def _merged(rng: np.random.Generator, capacity: int, lanes: int) -> Case:
    decoding = int(rng.choice([-1, 0, 1, lanes - 1, lanes, lanes + 5, 2**31 - 1]))
    case = random_lanes.pending(rng, "merge_pending", capacity, lanes=lanes, decode_lanes=decoding)
    return live(rng, case)


def _committed(rng: np.random.Generator, capacity: int, prompt: bool) -> Case:
    return live(rng, random_lanes.committed(rng, capacity, prompt=prompt))


def _selected(rng: np.random.Generator, capacity: int, packed: int, width: int) -> Case:
    return live(rng, random_lanes.selected(rng, capacity, packed, width))


def _attending(
    rng: np.random.Generator, capacity: int, packed: int, width: int, elements: int
) -> Case:
    return live(rng, random_lanes.attending(rng, capacity, packed, width, elements, _F16))


def _page(rng: np.random.Generator, kernel: str, dtype: int, elements: int) -> Case:
    capacity = int(rng.choice([1, 3, 7, 40]))
    case = request_cases.page_copy(
        rng, kernel, rows=capacity, capacity=capacity, elements=elements, dtype=dtype
    )
    names = ("slot", "endpoint", "row", "page_table")
    return live(rng, random_lanes.hostile(rng, case, names))


def _rows(rng: np.random.Generator, dtype: int, elements: int) -> Case:
    case = request_cases.copy_rows(
        rng, rows=12, capacity=12, elements=elements, dtype=dtype, count=6
    )
    return live(rng, random_lanes.hostile(rng, case, ("source", "destination")))


def _slice(rng: np.random.Generator) -> Case:
    rows = int(rng.choice([-(2**31), -3, 0, 1, 7, 8, 32, 40, 2**31 - 1]))
    start, limit = int(rng.integers(0, 41)), int(rng.integers(1, 41))
    return request_cases.slice_rows(rows=rows, capacity=32, start=start, limit=limit)


def _admitted_sampling(rng: np.random.Generator, vocab: int) -> Case:
    capacity = int(rng.choice([1, 3, 6]))
    case = sampling.initialize_sampling(rng, capacity=capacity, vocab=vocab)
    if rng.random() < 0.5:
        # Anything in a row's first elements, whatever it is taken for.
        for name in ("stop_ids", "bias_tokens", "bad_words", "recent"):
            case.operands[name][:, :12] = rng.integers(-2, 40, (capacity, 12))
    return live(rng, distinct_slots(rng, case, capacity))


def _counted(rng: np.random.Generator, capacity: int) -> Case:
    return live(rng, random_lanes.counted(rng, capacity, 40))


def _weighed(rng: np.random.Generator, begin: Cases, *, whole: bool) -> list[Case]:
    return round_cases.weighing(begin(rng), rng, whole=whole)


def joined(build: Cases) -> Build:
    """Launches one after the other, and fused: the same bits in every operand."""

    def make(rng: np.random.Generator) -> Trial:
        cases = tuple(build(rng))
        same = [
            SameBits("fused", name, ..., ..., launch=number)
            for number, case in enumerate(cases)
            for name in case.operands
        ]
        return Trial({WHOLE: Run(cases), "fused": Run(cases, fused=True)}, same)

    return make


def trials() -> dict[str, Build]:
    """All of them by name."""
    one: dict[str, Callable[[np.random.Generator], Case]] = {}
    together: dict[str, Cases] = {}
    for capacity, size in ((1, 4), (7, 7), (64, 300), (200, 40)):
        one[f"scatter {capacity}"] = partial(_scattered, capacity=capacity, size=size)
    for capacity in _CAPACITIES:
        one[f"admission {capacity}"] = partial(_admitted, capacity=capacity)
        for kernel in ("load_pending", "set_pending"):
            one[f"{kernel} {capacity}"] = partial(_pending, kernel=kernel, capacity=capacity)
        one[f"count {capacity}"] = partial(_counted, capacity=capacity)
        for prompt in (True, False):
            kind = "prompts" if prompt else "decoded"
            one[f"commit {kind} {capacity}"] = partial(_committed, capacity=capacity, prompt=prompt)
            together[f"end {kind} {capacity}"] = partial(
                round_cases.ending, capacity=capacity, prompt=prompt
            )
    for capacity, lanes in ((1, 1), (9, 4), (70, 33), (600, 300)):
        one[f"merge_pending {capacity}"] = partial(_merged, capacity=capacity, lanes=lanes)
    for capacity, packed, width in ((1, 1, 16), (9, 30, 1040), (130, 300, 5)):
        one[f"select_last {capacity}"] = partial(
            _selected, capacity=capacity, packed=packed, width=width
        )
        for elements in (1024, 77):
            one[f"select_attending {capacity}x{elements}"] = partial(
                _attending, capacity=capacity, packed=packed, width=width, elements=elements
            )
    for dtype, elements in _ROWS:
        for kernel in ("save_page", "load_page"):
            one[f"{kernel} {dtype}x{elements}"] = partial(
                _page, kernel=kernel, dtype=dtype, elements=elements
            )
        one[f"copy_rows {dtype}x{elements}"] = partial(_rows, dtype=dtype, elements=elements)
    one["slice_rows"] = _slice
    for vocab in (1, 31, 64, 333, 33_100):
        one[f"admission of sampling {vocab}"] = partial(_admitted_sampling, vocab=vocab)
    for capacity, width, form in (
        (1, 64, BF16_FORMAT), (5, 576, F32_FORMAT), (9, 1024, BF16_FORMAT), (70, 4096, BF16_FORMAT),
    ):  # fmt: skip
        together[f"begin decode {capacity}x{width}"] = partial(
            round_cases.decode, capacity=capacity, width=width, format_=form
        )
    for capacity, width in ((4, 64), (70, 576)):
        together[f"begin mixed {capacity}x{width}"] = partial(
            round_cases.mixed, capacity=capacity, width=width
        )
        together[f"begin prefill {capacity}x{width}"] = partial(
            round_cases.prefill, capacity=capacity, width=width
        )
    for name in [name for name in together if name.startswith("begin")]:
        for whole in (False, True):
            kind = "whole" if whole else "blocks"
            together[f"{name}, weighed in {kind}"] = partial(
                _weighed, begin=together[name], whole=whole
            )
    found: dict[str, Build] = {"scatter many": only(_wide_scatter)}
    for name, case in one.items():
        found |= {f"{name} #{seed}": only(case) for seed in range(_SEEDS)}
    for name, cases in together.items():
        found |= {f"{name} #{seed}": joined(cases) for seed in range(_SEEDS)}
    return found
