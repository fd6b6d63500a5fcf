"""Trials of two layers and a sampler in one program, as rounds have them.

Kernels may begin while the one before them ends. Beside it the same launches run strictly one after
the other; every operand must have the same bits. Buffers are used again by the second layer, so a
kernel that reads or writes too early shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from ignition.capture.ops import row_blocks
from tests.gpu.model_trials import MODELS, Model, linear, silu
from tests.gpu.trials import WHOLE, Build, Run, SameBits, Trial, written
from tests.native import cuda_cases, layer_cases, request_cases
from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT
from tests.native.states import STATE

_SEEDS: Final = 3
_LAYERS: Final = 2
_VOCABULARY: Final = 4096
_F16: Final = 7


def _layers(
    rng: np.random.Generator, model: Model, contexts: Sequence[int], lengths: Sequence[int]
) -> list[Case]:
    """Launches of a decode round, or of prompts where there are `lengths`: there every other lane's
    last row, and the last one's, is all that the last layer computes."""
    heads: dict[str, Any] = {
        "q_heads": model.q_heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
    }
    attending = cuda_cases.attention_f16(
        rng, contexts=contexts, lengths=lengths, table_pages=12, **heads
    )
    rows = len(attending.operands["positions"])
    attended = model.q_heads * model.head_dim
    joint = attended + 2 * model.kv_heads * model.head_dim
    qkv = _poison((rows, joint), np.float32)
    x = rng.standard_normal((rows, model.hidden), np.float32)
    at = _Rows.of(model, attending.operands["rows"], x)

    def weighing() -> Case:
        block, blocks = row_blocks(at.capacity, model.hidden)
        case = cuda_cases.weigh(
            rng, rows=at.capacity, capacity=at.capacity, width=model.hidden, block=block,
            whole=blocks == 1,
        )  # fmt: skip
        weight = case.operands["weight"] * np.float32(2 / model.hidden**0.5)
        return case.with_operands(rows=at.live, x=at.x, weight=weight)

    def product(given: Array, width: int, outputs: int, out: Array, *, bias: bool = False) -> Case:
        case = linear(rng, width, outputs, bias=bias, accumulate=out is at.x, rows=at.capacity)
        return case.with_operands(rows=at.live, x=given, out=out)

    cases: list[Case] = []
    for layer in range(_LAYERS):
        rope = cuda_cases.rope_and_cache_f16(
            rng, rows=rows, capacity=rows, norms=model.norms, table_pages=12, **heads
        )
        planes = {name: attending.operands[name] for name in ("k_plane", "v_plane")}
        if layer:
            planes = {name: rng.permutation(plane) for name, plane in planes.items()}
        same = ("rows", "positions", "slot", "page_table", "queries")
        rope = rope.with_operands(
            **{name: attending.operands[name] for name in same}, **planes, qkv=qkv
        )
        attending = attending.with_operands(**planes)
        normed = weighing()
        joined = linear(
            rng, model.hidden, joint, bias=model.bias, accumulate=False, rows=at.capacity
        )
        cases += [normed, cuda_cases.weighed(joined.with_operands(out=qkv), normed), rope]
        if lengths and layer == _LAYERS - 1:
            selection, attending = _selected(rng, attending, x, lengths)
            cases.append(selection)
            chosen = selection.operands
            at = _Rows.of(model, chosen["selected_rows"], chosen["out"])
        gate = silu(rng, model.hidden, model.intermediate, BF16_FORMAT, rows=at.capacity)
        normed = weighing()
        cases += [
            attending,
            product(attending.operands["out"], attended, model.hidden, at.x),
            normed,
            cuda_cases.weighed(gate.with_operands(out=at.gated), normed),
            product(at.gated, model.intermediate, model.hidden, at.x),
        ]
    logits = _poison((at.capacity, _VOCABULARY), np.float32)
    sample = request_cases.sample(
        rng, rows=at.capacity, capacity=at.capacity, vocab=_VOCABULARY, temperature=0.8, top_p=0.95
    )
    sample.operands["state"].view(STATE).reshape(-1)["temperature"][::2] = 0
    normed = weighing()
    head = linear(rng, model.hidden, _VOCABULARY, bias=False, accumulate=False, rows=at.capacity)
    return [
        *cases,
        normed,
        cuda_cases.weighed(head.with_operands(out=logits), normed),
        sample.with_operands(rows=at.live, logits=logits),
    ]


@dataclass(frozen=True)
class _Rows:
    """Rows of a residual, how many live, and what a layer makes of them in between."""

    live: Array
    x: Array
    gated: Array

    @staticmethod
    def of(model: Model, live: Array, x: Array) -> _Rows:
        """Of a residual."""
        return _Rows(live, x, _bytes(len(x), 2 * model.intermediate))

    @property
    def capacity(self) -> int:
        """How many there may be."""
        return len(self.x)


def _selected(
    rng: np.random.Generator, attending: Case, x: Array, lengths: Sequence[int]
) -> tuple[Case, Case]:
    """What selects rows of prompts, and their attention by themselves."""
    lanes, (rows, width) = len(lengths), x.shape
    queries = attending.operands["queries"]
    elements = queries.shape[1]
    selection = layer_cases.select_attending(
        rng, rows=lanes, capacity=lanes, packed_capacity=rows, width=width, elements=elements,
        dtype=_F16,
    )  # fmt: skip
    selection = selection.with_operands(
        query_length=np.array(lengths, np.int32),
        sample=(np.arange(lanes)[::-1] % 2 == 0).astype(np.int32),
        x=x, out=_poison((lanes, width), np.float32),
        out_queries=_poison((lanes, elements), np.uint16),
        **{name: attending.operands[name] for name in ("queries", "positions", "slot")},
    )  # fmt: skip
    chosen, given = selection.operands, attending.operands
    operands = {n: a for n, a in given.items() if n not in ("lanes", "query_length")}
    operands |= {
        "rows": chosen["selected_rows"], "queries": chosen["out_queries"],
        "positions": chosen["out_positions"], "slot": chosen["out_slot"],
        "out": _bytes(lanes, given["out"].shape[1]),
    }  # fmt: skip
    integers = {**attending.integers, "capacity": lanes, "lane_capacity": 0}
    return selection, Case(attending.kernel, operands, integers, attending.floats)


def _poison(shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
    made = np.empty(shape, dtype)
    made.view(np.uint8)[...] = 0xFF
    return made


def _bytes(rows: int, nbytes: int) -> Array:
    return np.full((rows, nbytes), 0xFF, np.uint8)


def _overlapped(
    rng: np.random.Generator, model: Model, contexts: Sequence[int], lengths: Sequence[int]
) -> Trial:
    """One after the other and as a program has them, with fusions and without."""
    cases = tuple(_layers(rng, model, contexts, lengths))
    # What a rotation is left by the projection, and what it leaves for the attention.
    between = {
        id(case.operands[name]): case.operands[name]
        for case in cases
        if case.kernel == "rope_and_cache_f16"
        for name in ("qkv", "queries")
    }
    unread = tuple(between.values())
    runs = {
        WHOLE: Run(cases, reference=False, early=False),
        "early": Run(cases, reference=False),
        "fused": Run(cases, reference=False, fused=True, unread=unread),
    }
    same = [SameBits("early", name, ..., ..., launch=n) for n, name in written(cases)]
    same += [SameBits("fused", name, ..., ..., launch=n) for n, name in written(cases, unread)]
    return Trial(runs, same)


def trials() -> dict[str, Build]:
    """All of them by name."""
    rounds: dict[str, tuple[list[int], list[int]]] = {
        "1": ([130], []),
        "3": ([1, 0, 300], []),
        "8": ([1, 64, 65, 700, 256, 257, 30, 511], []),
        "128": ([1, 64, 65, 300] * 32, []),
        "prompts": ([70, 300, 30], [70, 100, 1]),
        # Whose projections are done in groups of warps.
        "long prompts": ([300, 260, 30], [300, 230, 1]),
    }
    few = tuple(size for size in rounds if size != "long prompts")
    sizes = {"135M": few, "0.6B": (*few, "long prompts"), "8B": ("8", "long prompts")}
    found: dict[str, Build] = {}
    for name in MODELS:
        small = name in ("135M", "0.6B")
        for size, (contexts, lengths) in rounds.items():
            if size not in sizes.get(name, ("8", "prompts")):
                continue
            for seed in range(_SEEDS if small else 1):
                found[f"layers {name} {size} #{seed}"] = partial(
                    _overlapped, model=MODELS[name], contexts=contexts, lengths=lengths
                )
    return found
