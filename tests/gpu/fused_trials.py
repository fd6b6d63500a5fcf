"""Trials of fused launches of a forward pass: the bits of the launches one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tests.gpu.model_trials import MODELS, Model, linear, silu
from tests.gpu.trials import WHOLE, Build, Run, SameBits, Trial
from tests.native import cuda_cases, layer_cases
from tests.native.launches import Case
from tests.native.packings import BF16_FORMAT

_CONTEXTS = (1, 64, 65, 0, 256, 257, 300, 30)


def _normed(rng: np.random.Generator, case: Case) -> tuple[Case, Case]:
    """A norm and the projection that reads it."""
    norm = layer_cases.rms_norm(
        rng, BF16_FORMAT, rows=int(case.operands["rows"][0]), capacity=case.integers["capacity"],
        width=case.integers["width"],
    )  # fmt: skip
    x = np.full_like(norm.operands["out"], 0xFF)
    norm = norm.with_operands(rows=case.operands["rows"], out=x)
    return norm, case.with_operands(x=x)


def _joined(cases: Sequence[Case], unread: Sequence[tuple[int, str]]) -> Trial:
    """One by one against the reference, and fused."""
    skipped = {id(cases[number].operands[name]) for number, name in unread}
    same = [
        SameBits("fused", name, ..., ..., launch=number)
        for number, case in enumerate(cases)
        for name, array in case.operands.items()
        if id(array) not in skipped
    ]
    arrays = tuple(cases[number].operands[name] for number, name in unread)
    fused = Run(tuple(cases), fused=True, reference=False, unread=arrays)
    return Trial({WHOLE: Run(tuple(cases), reference=False), "fused": fused}, same)


def _projection(rng: np.random.Generator, model: Model, rows: int, *, gated: bool) -> Trial:
    if gated:
        case = silu(rng, model.hidden, model.intermediate, BF16_FORMAT, rows=rows)
    else:
        outputs = (model.q_heads + 2 * model.kv_heads) * model.head_dim
        case = linear(rng, model.hidden, outputs, bias=model.bias, accumulate=False, rows=rows)
    return _joined(_normed(rng, case), [(0, "out")])


def _attention(rng: np.random.Generator, model: Model, *, first: int, times: int = 1) -> Trial:
    """A norm (`first` 0), a projection (1), a rotation (2), and the attention after it."""
    contexts = _CONTEXTS * times
    rows = len(contexts)
    heads = {"q_heads": model.q_heads, "kv_heads": model.kv_heads, "head_dim": model.head_dim}
    attention = cuda_cases.attention_f16(rng, contexts=contexts, table_pages=6, **heads)
    rope = cuda_cases.rope_and_cache_f16(
        rng, rows=rows, capacity=rows, norms=model.norms, slots=1, table_pages=rows, **heads
    )
    shared = ("rows", "positions", "slot", "page_table", "k_plane", "v_plane")
    given = {name: attention.operands[name] for name in shared}
    for plane in (given["k_plane"], given["v_plane"]):
        for slot, context in zip(given["slot"], contexts, strict=True):
            if context:
                page, cell = divmod(context - 1, cuda_cases.PAGE_TOKENS)
                plane[given["page_table"][slot, page], :, cell] = cuda_cases.F16_NAN
    width = rope.operands["qkv"].shape[1]
    projection = linear(rng, model.hidden, width, bias=model.bias, accumulate=False, rows=rows)
    norm, projection = _normed(rng, projection.with_operands(rows=given["rows"]))
    if first == 1:
        projection = projection.with_operands(
            x=rng.integers(0x3E00, 0x4000, (rows, model.hidden), np.uint16).view(np.uint8)
        )
    qkv = projection.operands["out"] if first < 2 else rope.operands["qkv"]
    rope = rope.with_operands(**given, qkv=qkv).with_integers(table_pages=6)
    attention = attention.with_operands(queries=rope.operands["queries"])
    cases = [norm, projection, rope, attention][first:]
    unread = [(2 - first, "queries"), *([(0, "out")] if first == 0 else [])]
    return _joined(cases, unread)


def trials() -> dict[str, Build]:
    """All of them by name."""
    found: dict[str, Build] = {}
    for name, rows in (("tiny", 5), ("135M", 3), ("135M", 16), ("0.6B", 8), ("qwen2", 13)):
        # The gate and up of qwen2 aren't a small matrix.
        for gated in (False,) if name == "qwen2" else (False, True):
            kind = "gated" if gated else "linear"
            found[f"norm inside {kind} {name} {rows}"] = partial(
                _projection, model=MODELS[name], rows=rows, gated=gated
            )
    for name, times in (("tiny", 20), ("135M", 1), ("qwen2", 1), ("0.6B", 1), ("8B", 1)):
        model = MODELS[name]
        for first in (0, 1, 2) if name == "135M" else (1, 2):
            found[f"rotation inside {name} from {first}"] = partial(
                _attention, model=model, first=first, times=times
            )
    return found
