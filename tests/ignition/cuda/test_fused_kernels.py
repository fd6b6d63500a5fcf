"""Fused launches of a forward pass: what the launches one by one make, bit for bit where no matrix
product's order differs in the interpreter, and close to the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda.interpreted import WITHOUT_TRITON, run, run_fused
from tests.ignition.cuda.test_model_kernels import MODELS, linear
from tests.native import cuda_cases, layer_cases
from tests.native.harness import Case
from tests.native.packings import BF16_FORMAT

pytest.importorskip("triton", reason=WITHOUT_TRITON)


def normed(case: Case, seed: int = 3) -> tuple[Case, Case]:
    """An `rms_norm` and the projection that reads what it writes."""
    extents = {name: case.integers[name] for name in ("capacity", "width")}
    norm = layer_cases.rms_norm(
        np.random.default_rng(seed), BF16_FORMAT, rows=int(case.operands["rows"][0]), **extents
    )
    x = np.full_like(norm.operands["out"], 0xFF)
    norm = norm.with_operands(rows=case.operands["rows"], out=x)
    return norm, case.with_operands(x=x)


def decoding(
    model: str, *, contexts: list[int], capacity: int = 6, window: int = 0, table_pages: int = 6
) -> list[Case]:
    """Norm, projection, rotation and attention of a row for each context; what the rotation stores
    isn't in the cache yet."""
    rng = np.random.default_rng(len(model))
    heads = MODELS[model]
    attention = cuda_cases.attention_f16(
        rng, contexts=contexts, capacity=capacity, window=window, table_pages=table_pages, **heads
    )
    rope = cuda_cases.rope_and_cache_f16(
        rng, rows=len(contexts), capacity=capacity, norms=model in ("0.6B", "tiny"), **heads
    )
    shared = ("rows", "positions", "slot", "page_table", "k_plane", "v_plane")
    given = {name: attention.operands[name] for name in shared}
    for plane in ("k_plane", "v_plane"):
        for slot, context in zip(given["slot"], contexts, strict=False):
            if context:
                at = divmod(context - 1, cuda_cases.PAGE_TOKENS)
                given[plane][given["page_table"][slot, at[0]], :, at[1]] = cuda_cases.F16_NAN
    outputs = rope.operands["qkv"].shape[1]
    projection = linear(
        rng, rows=len(contexts), capacity=capacity, width=64, outputs=outputs, bias=1
    ).with_operands(rows=given["rows"])
    norm, projection = normed(projection)
    rope = rope.with_operands(**given, qkv=projection.operands["out"]).with_integers(
        table_pages=table_pages
    )
    return [norm, projection, rope, attention.with_operands(queries=rope.operands["queries"])]


def one_by_one(cases: list[Case]) -> list[dict[str, np.ndarray]]:
    """The launches without a fusion, each on what the others left."""
    after: dict[int, np.ndarray] = {}
    results = []
    for case in cases:
        now = {name: after.get(id(array), array) for name, array in case.operands.items()}
        results.append(run(case.with_operands(**now)))
        for name, array in case.operands.items():
            after[id(array)] = results[-1][name]
    return results


@pytest.mark.parametrize("model", ["tiny", "135M", "0.6B"])
def test_rotation_inside_attention(model: str) -> None:
    cases = decoding(model, contexts=[1, 0, 64, 300], capacity=4)
    alone = one_by_one(cases)
    cases[1] = cases[1].with_operands(x=alone[0]["out"])
    fused = run_fused(cases[1:], unread=[cases[2].operands["queries"]])[-1]
    for name in ("k_plane", "v_plane", "out"):
        # A plane is written by the rotation; the attention comes after it.
        assert fused[name].tobytes() == alone[-1][name].tobytes(), name


@pytest.mark.parametrize(
    "options",
    [
        {"contexts": [300, 9, 65], "window": 70},
        {"contexts": [65] * 140, "capacity": 141},
        {"contexts": [65, 384, 300], "past_the_table": True},
    ],
)
def test_rotation_inside_attention_of_other_shapes(options: dict) -> None:
    past = options.pop("past_the_table", False)
    cases = decoding("tiny", **options)
    if past:
        cases[2].operands["positions"][2] = 384
    alone = one_by_one(cases)
    cases[1] = cases[1].with_operands(x=alone[0]["out"])
    fused = run_fused(cases[1:], unread=[cases[2].operands["queries"]])[-1]
    for name in ("k_plane", "v_plane", "out"):
        assert fused[name].tobytes() == alone[-1][name].tobytes(), name
