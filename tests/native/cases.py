"""Random launches of every kernel, small enough for guard pages and invariance tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.native import sampling
from tests.native.launches import Case
from tests.native.layer_cases import (
    activation_formats,
    attention,
    embed,
    in_pairs,
    linear,
    linear_silu_mul,
    rms_norm,
    rope_and_cache,
    select_attending,
    select_last,
)
from tests.native.packings import (
    BF16_FORMAT,
    F32_FORMAT,
    FORMATS,
    Q8_FORMAT,
    Q8_PAIRS_FORMAT,
    Q16_FORMAT,
    QUANTISED,
    QUANTISED_FORMATS,
    TILED,
    Packing,
)
from tests.native.pairs import PAIR
from tests.native.request_cases import (
    ELEMENTS,
    commit,
    copy_rows,
    initialize_requests,
    load_pending,
    merge_pending,
    page_copy,
    sample,
    scatter_i32,
    score,
    score_ranked,
    set_pending,
    slice_rows,
)
from tests.native.states import STATE as STATE
from tests.native.states import i32


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


def _in_pairs(make: Callable[[np.random.Generator], Case], rng: np.random.Generator) -> Case:
    return in_pairs(make(rng))


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
        made[f"select_attending_{dtype}"] = partial(
            select_attending, rows=5, capacity=5, packed_capacity=10, width=7, elements=9,
            dtype=dtype,
        )  # fmt: skip
        name = "copy_rows" if dtype == 7 else f"copy_rows_{dtype}"
        made[name] = partial(copy_rows, rows=4, capacity=4, elements=77, dtype=dtype, count=9)
    for format_, width in (
        (F32_FORMAT, 77),
        (BF16_FORMAT, 77),
        (Q8_FORMAT, 96),
        (Q16_FORMAT, 96),
        (Q8_PAIRS_FORMAT, 192),
    ):
        made[f"rms_norm_{format_}"] = partial(
            rms_norm, format_=format_, rows=3, capacity=3, width=width
        )
    for packing in TILED:
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
                    rows=9, capacity=9, outputs=128 if out_format in QUANTISED_FORMATS else 48,
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
        made[f"rope_{head_dim}_{page_tokens}_bf16"] = partial(
            _in_pairs, made[f"rope_{head_dim}_{page_tokens}"]
        )
        for format_ in FORMATS:
            if format_ not in QUANTISED_FORMATS or 3 * head_dim % PAIR == 0:
                made[f"attention_{head_dim}_{page_tokens}_{format_}"] = partial(
                    attention, rows=7, capacity=7, format_=format_, **extents
                )
                made[f"attention_{head_dim}_{page_tokens}_{format_}_bf16"] = partial(
                    _in_pairs, made[f"attention_{head_dim}_{page_tokens}_{format_}"]
                )
    return made


EVERY_KERNEL = every_kernel()
