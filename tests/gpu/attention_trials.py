"""Trials of attention: decode in any company, prompts whole, in chunks and token by token.

A prompt's rows have the same bits in all of these. In each run cells of tokens that come later hold
NaN, as if nobody had written them yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from tests.gpu.model_trials import MODELS, Model, linear
from tests.gpu.trials import (
    WHOLE,
    Build,
    Company,
    Run,
    SameBits,
    Trial,
    companies,
    in_company,
    only,
    rows_of_all,
)
from tests.native import cuda_cases
from tests.native.cuda_cases import F16_NAN, PAGE_TOKENS
from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT, F32_FORMAT, encode
from tests.native.states import i32

_WIDTH: Final = 64  # inputs of the projection before a rotation
# Rows times query heads from which a prompt's tiles are tall on an H200.
_TALL_ROWS: Final = 128 * 132
_CONTEXTS: Final = (1, 64, 65, 0, 256, 257, 300, 30, 511, 700, 128, 2)


def _decode(
    rng: np.random.Generator, model: Model, *, window: int = 0, sizes: Sequence[int], times: int = 1
) -> Trial:
    """Lanes with contexts that end within pages, at their ends and past a split's."""
    case = cuda_cases.attention_f16(
        rng, contexts=_CONTEXTS * times, q_heads=model.q_heads, kv_heads=model.kv_heads,
        head_dim=model.head_dim, window=window, table_pages=12,
    )  # fmt: skip
    return in_company(case, ["out"], companies(rng, len(_CONTEXTS) * times, sizes))


def _prompts(rng: np.random.Generator, model: Model, lengths: Sequence[int]) -> Case:
    """A decode launch that has every token of several prompts as a row of its own."""
    table_pages = -(-max(lengths) // PAGE_TOKENS)
    return cuda_cases.attention_f16(
        rng, contexts=lengths, lengths=lengths, q_heads=model.q_heads, kv_heads=model.kv_heads,
        head_dim=model.head_dim, table_pages=table_pages,
    )  # fmt: skip


def _chunk(
    whole: Case, firsts: Sequence[int], counts: Sequence[int], begins: Sequence[int],
    *, capacity: int, lane_capacity: int,
) -> Case:  # fmt: skip
    """A prefill launch with `counts` tokens of each prompt from `firsts` on, whose rows begin at
    `begins` in the launch of whole prompts; prompts with a count of 0 are left out."""
    rows = np.concatenate(
        [np.arange(b + f, b + f + n) for b, f, n in zip(begins, firsts, counts, strict=True)]
    ).astype(np.intp)
    operands = whole.operands

    def padded(array: Array) -> Array:
        rest = np.full((capacity - len(rows), *array.shape[1:]), 0, array.dtype)
        rest.view(np.uint8)[...] = 0xFF
        return np.concatenate([array[rows], rest])

    lengths = [n for n in counts if n]
    beyond = np.full(lane_capacity - len(lengths), 1 << 20)
    changed: dict[str, Array] = {name: padded(operands[name]) for name in ("queries", "out")}
    changed |= {name: padded(operands[name]) for name in ("positions", "slot")}
    changed |= {
        "rows": i32(len(rows)),
        "lanes": i32(len(lengths)),
        "query_length": np.concatenate([lengths, beyond]).astype(np.int32),
    }
    for name in ("k_plane", "v_plane"):
        changed[name] = _written(whole, name, firsts, counts, begins)
    return whole.with_operands(**changed).with_integers(
        capacity=capacity, lane_capacity=lane_capacity
    )


def _written(
    whole: Case, name: str, firsts: Sequence[int], counts: Sequence[int], begins: Sequence[int]
) -> Array:
    """A plane in which nothing is that comes after these tokens."""
    plane = whole.operands[name].copy()
    for begin, first, count in zip(begins, firsts, counts, strict=True):
        table = whole.operands["page_table"][whole.operands["slot"][begin]]
        for column, page in enumerate(table):
            written = max(0, min(first + count - column * PAGE_TOKENS, PAGE_TOKENS))
            plane[page, :, written:] = F16_NAN
    return plane


def _history(rng: np.random.Generator, model: Model, lengths: list[int], window: int) -> Trial:
    """Prompts whole, in chunks beside one another, alone, and as decoded."""
    whole = _prompts(rng, model, lengths).with_integers(window=window)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]]).tolist()
    runs, same = {WHOLE: Run((whole,))}, []

    def add(
        name: str, firsts: Sequence[int], counts: Sequence[int], capacity: int, lanes: int
    ) -> None:
        part = _chunk(whole, firsts, counts, begins, capacity=capacity, lane_capacity=lanes)
        runs[name] = Run((part,), reference=False)
        rows = np.concatenate(
            [np.arange(b + f, b + f + n) for b, f, n in zip(begins, firsts, counts, strict=True)]
        )
        same.append(SameBits(name, "out", np.arange(len(rows)), rows))

    nothing = [0] * len(lengths)
    for number, length in enumerate(lengths):
        counts = nothing.copy()
        counts[number] = length
        add(f"prompt {number} alone", nothing, counts, length + 3, 1)
    cuts = [sorted(rng.choice(np.arange(1, n), min(2, n - 1), replace=False)) for n in lengths]
    edges = [[0, *cut, *[n] * (3 - len(cut))] for cut, n in zip(cuts, lengths, strict=True)]
    for step in range(3):
        firsts = [edge[step] for edge in edges]
        counts = [edge[step + 1] - edge[step] for edge in edges]
        if sum(counts):
            add(f"chunk {step}", firsts, counts, sum(counts) + 40, len(lengths) + 3)
    # One token of each but the last, which brings many: a mixed round.
    firsts = [n - 1 for n in lengths[:-1]] + [lengths[-1] // 3]
    counts = [1] * (len(lengths) - 1) + [lengths[-1] - lengths[-1] // 3]
    add("mixed", firsts, counts, sum(counts) + 1, len(lengths))
    # Room for so many rows that there another kernel is taken: whole, from the last cut on, mixed.
    roomy = max(-(-_TALL_ROWS // model.q_heads), sum(lengths) + 5)
    add("roomy", nothing, lengths, roomy, len(lengths))
    firsts = [edge[2] if edge[2] < edge[3] else 0 for edge in edges]
    counts = [n - first for n, first in zip(lengths, firsts, strict=True)]
    add("roomy ends", firsts, counts, roomy, len(lengths) + 30)
    firsts = [n - 1 for n in lengths[:-1]] + [0]
    add("roomy mixed", firsts, [1] * (len(lengths) - 1) + lengths[-1:], roomy, len(lengths))
    decoded = {n: a for n, a in whole.operands.items() if n not in ("lanes", "query_length")}
    every = Case(whole.kernel, decoded, {**whole.integers, "lane_capacity": 0}, whole.floats)
    for name, picked in (
        ("decoded", rng.permutation(sum(lengths))),
        ("decoded one", np.array([sum(lengths) - 1])),
        ("decoded few", rng.choice(sum(lengths), 5, replace=False)),
    ):
        part = {
            name: every.operands[name][picked] for name in ("queries", "positions", "slot", "out")
        }
        case = every.with_operands(**part, rows=i32(len(picked)))
        runs[name] = Run((case.with_integers(capacity=len(picked)),), reference=False)
        same.append(SameBits(name, "out", np.arange(len(picked)), picked))
    return Trial(runs, same)


def _long(rng: np.random.Generator, model: Model, tokens: int) -> Trial:
    """One long prompt whose later half follows in one chunk, and its last tokens as decoded."""
    whole = _prompts(rng, model, [tokens])
    half = tokens // 2
    rows = np.arange(half, tokens)
    part = _chunk(whole, [half], [tokens - half], [0], capacity=tokens - half, lane_capacity=1)
    last = np.arange(tokens - 8, tokens)
    decoded = {n: a for n, a in whole.operands.items() if n not in ("lanes", "query_length")}
    decoded |= {name: decoded[name][last] for name in ("queries", "positions", "slot", "out")}
    integers = {**whole.integers, "lane_capacity": 0, "capacity": 8}
    steps = Case(whole.kernel, decoded | {"rows": i32(8)}, integers, whole.floats)
    return Trial(
        {
            WHOLE: Run((whole,)),
            "second half": Run((part,), reference=False),
            "decoded": Run((steps,), reference=False),
        },
        [
            SameBits("second half", "out", np.arange(tokens - half), rows),
            SameBits("decoded", "out", np.arange(8), last),
        ],
    )


def _rotated(rng: np.random.Generator, model: Model, window: int = 0) -> Trial:
    """Rotation and attention in one launch after the projection, in any company: as one after the
    other."""
    heads: dict[str, Any] = {
        "q_heads": model.q_heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
    }
    count = len(_CONTEXTS)
    attention = cuda_cases.attention_f16(
        rng, contexts=_CONTEXTS, window=window, table_pages=12, **heads
    )
    rope = cuda_cases.rope_and_cache_f16(
        rng, rows=count, capacity=count, norms=model.norms, table_pages=12, **heads
    )
    operands = attention.operands
    for context, slot in zip(_CONTEXTS, operands["slot"], strict=True):
        if context:  # what the rotation stores isn't there yet
            column, cell = divmod(context - 1, PAGE_TOKENS)
            page = operands["page_table"][slot, column]
            for plane in ("k_plane", "v_plane"):
                operands[plane][page, :, cell] = F16_NAN
    shared = ("rows", "positions", "slot", "page_table", "k_plane", "v_plane")
    rope = rope.with_operands(**{name: operands[name] for name in shared})
    joint = rope.operands["qkv"].shape[1]
    projection = linear(
        rng, _WIDTH, joint, bias=model.bias, accumulate=False, rows=count
    ).with_operands(rows=operands["rows"], out=rope.operands["qkv"])
    small = rng.standard_normal((count, _WIDTH), np.float32) / _WIDTH**0.5
    projection = projection.with_operands(x=encode(small, BF16_FORMAT))
    cases = (projection, rope, attention.with_operands(queries=rope.operands["queries"]))
    runs, same = {WHOLE: Run(cases)}, []
    every = Company(range(count), count)
    found = companies(rng, count, [3, 8, 20, 100], repeated=False)
    for one in [every, *found]:
        part = rows_of_all(cases, one.rows, one.capacity)
        name = f"fused, {one.name}"
        runs[name] = Run(tuple(part), fused=True, unread=(part[1].operands["queries"],))
        rows = np.asarray(one.rows)
        same.append(SameBits(name, "out", np.arange(len(rows)), rows))
    planes = ("k_plane", "v_plane")
    same += [SameBits(f"fused, {every.name}", plane, ..., ...) for plane in planes]
    return Trial(runs, same)


def trials() -> dict[str, Build]:
    """All of them by name."""
    found: dict[str, Build] = {}
    for name, model in MODELS.items():
        found[f"decode {name}"] = partial(_decode, model=model, sizes=[3, 8, 20])
        found[f"rotated {name}"] = partial(_rotated, model=model)
        found[f"prompts {name}"] = partial(
            _history, model=model, lengths=[70, 1, 300, 130], window=0
        )
    tiny, small, large = MODELS["tiny"], MODELS["135M"], MODELS["8B"]
    found["decode window"] = partial(_decode, model=small, sizes=[3, 20], window=70)
    found["rotated window"] = partial(_rotated, model=small, window=70)
    found["decode many"] = partial(_decode, model=small, sizes=[32, 128, 200], times=11)
    found["prompts window"] = partial(_history, model=small, lengths=[200, 330], window=100)
    found["prompts of edges"] = partial(
        _history, model=small, lengths=[64, 128, 256, 257, 320, 511, 512, 513, 2], window=0
    )
    found["prompts of edges 8B"] = partial(
        _history, model=large, lengths=[63, 65, 192, 255, 256, 385, 640], window=0
    )
    found["long prompt 135M"] = partial(_long, model=small, tokens=2100)
    found["long prompt 8B"] = partial(_long, model=large, tokens=900)
    heads: dict[str, Any] = {
        "q_heads": tiny.q_heads,
        "kv_heads": tiny.kv_heads,
        "head_dim": tiny.head_dim,
    }
    for format_ in (BF16_FORMAT, F32_FORMAT):
        found[f"decode inert {format_}"] = only(
            partial(
                cuda_cases.attention_f16, contexts=[0, 5, 0, 130], capacity=9, format_=format_,
                **heads,
            )
        )  # fmt: skip
    found["prefill with empty lanes"] = only(
        partial(
            cuda_cases.attention_f16, contexts=[5, 0, 90, 300, 7], lengths=[5, 1, 40, 1, 0],
            capacity=50, lane_capacity=6, **heads,
        )
    )  # fmt: skip
    return found
