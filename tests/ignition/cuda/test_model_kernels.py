"""Kernels of a forward pass, interpreted, against the numpy reference, and compiled.

Poisoned outputs: what isn't written stays as it was, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.ignition.cuda.interpreted import WITHOUT_TRITON, compiled, resources, run
from tests.native import cuda_cases, layer_cases
from tests.native.harness import Case
from tests.native.packings import BF16_FORMAT, F32_FORMAT, Packing
from tests.native.states import i32

pytest.importorskip("triton", reason=WITHOUT_TRITON)

ROWS = Packing.ROWS_BF16
norm = layer_cases.rms_norm
Build = Callable[[np.random.Generator], Case]


def linear(rng: np.random.Generator, **extents: int) -> Case:
    case = layer_cases.linear(rng, ROWS, BF16_FORMAT, **extents)[0]
    if case.integers["accumulate"]:
        return case
    return case.with_operands(out=np.full_like(case.operands["out"], np.nan))


def silu(rng: np.random.Generator, *, out_format: int = BF16_FORMAT, **extents: int) -> Case:
    return layer_cases.linear_silu_mul(rng, ROWS, BF16_FORMAT, out_format, **extents)[0]


def embed(rng: np.random.Generator, **extents: int) -> Case:
    case = layer_cases.embed(rng, ROWS, **extents)[0]
    case.operands["tokens"][:2] = [-1, extents["vocab"]]
    return case


def small_norm(rng: np.random.Generator, **extents: int) -> Case:
    """Values whose mean square is no more than epsilon."""
    case = norm(rng, format_=F32_FORMAT, **extents)
    scale = np.float32(np.sqrt(case.floats["epsilon"]))
    return case.with_operands(x=case.operands["x"] * scale)


def no_such_page(rng: np.random.Generator, **extents: Any) -> Case:
    """Tables name pages that there aren't, before the first and from the last on."""
    case = cuda_cases.rope_and_cache_f16(rng, positions=range(60, 66), **extents)
    table = case.operands["page_table"].copy()
    table[:, 1] = len(case.operands["k_plane"]), -1, 1 << 30
    return case.with_operands(page_table=table)


def cut_short(rng: np.random.Generator, *, rows: int, **extents: Any) -> Case:
    """Lengths add up to more rows than there are."""
    case = cuda_cases.attention_f16(rng, **extents)
    return case.with_operands(rows=i32(rows))


MODELS = {
    "tiny": {"q_heads": 4, "kv_heads": 2, "head_dim": 16},
    "135M": {"q_heads": 9, "kv_heads": 3, "head_dim": 64},
    "0.6B": {"q_heads": 16, "kv_heads": 8, "head_dim": 128},
    "qwen2": {"q_heads": 14, "kv_heads": 2, "head_dim": 64},
}
CASES: dict[str, Build] = {
    "embed": partial(embed, rows=5, capacity=7, vocab=43, width=64),
    "embed_wide": partial(embed, rows=3, capacity=3, vocab=9, width=1160),
    "rms_norm": partial(norm, format_=BF16_FORMAT, rows=3, capacity=5, width=64),
    "rms_norm_small": partial(small_norm, rows=3, capacity=4, width=64),
    "rms_norm_f32": partial(norm, format_=F32_FORMAT, rows=3, capacity=3, width=576),
    "rms_norm_many": partial(norm, format_=BF16_FORMAT, rows=130, capacity=131, width=96),
    "linear": partial(linear, rows=3, capacity=5, width=64, outputs=128),
    "linear_ragged": partial(linear, rows=9, capacity=11, width=104, outputs=331, bias=1),
    "linear_add": partial(linear, rows=17, capacity=19, width=96, outputs=64, bias=1, accumulate=1),
    "linear_parts": partial(linear, rows=5, capacity=7, width=3072, outputs=64, accumulate=1),
    "linear_parts_many": partial(linear, rows=130, capacity=140, width=4864, outputs=64),
    "linear_many": partial(linear, rows=70, capacity=129, width=96, outputs=331, bias=1),
    "linear_wide": partial(linear, rows=5, capacity=33, width=1032, outputs=72),
    "silu": partial(silu, rows=9, capacity=9, width=64, outputs=96),
    "silu_f32": partial(silu, rows=40, capacity=41, width=64, outputs=40, out_format=F32_FORMAT),
    "silu_many": partial(silu, rows=150, capacity=151, width=72, outputs=200),
}
for model, heads in MODELS.items():
    CASES[f"rope_{model}"] = partial(
        cuda_cases.rope_and_cache_f16, rows=5, capacity=6, norms=model in ("0.6B", "tiny"),
        positions=[-1, 0, 255], **heads,
    )  # fmt: skip
    CASES[f"decode_{model}"] = partial(
        cuda_cases.attention_f16, contexts=[1, 0, 70, 300], capacity=5, **heads
    )
    CASES[f"prefill_{model}"] = partial(
        cuda_cases.attention_f16, contexts=[5, 0, 90, 300, 7], lengths=[5, 1, 40, 1, 0],
        capacity=50, lane_capacity=6, **heads,
    )  # fmt: skip
TINY = MODELS["tiny"]
CASES |= {
    "rope_far": partial(
        cuda_cases.rope_and_cache_f16, rows=4, capacity=4, table_pages=2048,
        positions=[131_071, 99_991, 65_537, 131_072], **TINY,
    ),
    "rope_no_such_page": partial(no_such_page, rows=6, capacity=6, **TINY),
    "rope_many": partial(cuda_cases.rope_and_cache_f16, rows=65, capacity=66, **TINY),
    "decode_alone": partial(cuda_cases.attention_f16, contexts=[280, 3] * 70, **TINY),
    "decode_window": partial(cuda_cases.attention_f16, contexts=[300, 9, 65], window=70, **TINY),
    "decode_f32": partial(
        cuda_cases.attention_f16, contexts=[64, 256], format_=F32_FORMAT, **TINY
    ),
    "prefill_cut_short": partial(
        cut_short, contexts=[70, 9], lengths=[20, 9], rows=25, capacity=31, **TINY
    ),
    "prefill_window": partial(
        cuda_cases.attention_f16, contexts=[300, 30], lengths=[70, 30], window=70, **TINY
    ),
}  # fmt: skip


def check(case: Case, got: dict[str, np.ndarray]) -> None:
    """Written operands against the reference; everything else, and what the reference leaves,
    has the bytes that it had."""
    wanted = cuda_cases.expected(case)
    for name, before in case.operands.items():
        if name not in wanted:
            assert got[name].tobytes() == before.tobytes(), name
            continue
        exact = wanted[name]
        old, new = (cuda_cases.values(case, name, array) for array in (before, got[name]))
        left = (old == exact) | (np.isnan(old) & np.isnan(exact))
        elements = [array.view(np.uint8).reshape(len(exact), -1) for array in (before, got[name])]
        kept = (elements[0] == elements[1]).all(axis=1)
        spread = np.sqrt(np.mean(np.square(exact[~left]))) if not left.all() else 0.0
        close = np.abs(new - exact) <= 2e-2 * np.abs(exact) + 4e-3 * spread
        wrong = np.flatnonzero(~np.where(left, kept, close))
        assert not wrong.size, (name, len(wrong), wrong[:5], new[wrong][:5], exact[wrong][:5])


@pytest.mark.parametrize("name", CASES)
def test_kernels_do_what_the_reference_does(name: str) -> None:
    case = CASES[name](np.random.default_rng(len(name)))
    check(case, run(case))


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_programs_changes_no_bit(name: str) -> None:
    case = CASES[name](np.random.default_rng(len(name)))
    ascending, descending = run(case), run(case, descending=True)
    for operand, array in ascending.items():
        assert array.tobytes() == descending[operand].tobytes()


@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith(("135M", "qwen2"))])
def test_compiled_kernels_keep_their_values_in_registers(name: str) -> None:
    for kernel in compiled(CASES[name](np.random.default_rng(0))):
        assert resources(kernel)["STACK"] <= 16
