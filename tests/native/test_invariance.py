"""A row's bits don't depend on the rows beside it, on capacity, or on the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.native import layer_cases, request_cases, sampling
from tests.native.company import SCORES, rows_of
from tests.native.harness import INSTRUCTION_SETS, Case, run
from tests.native.packings import BF16_FORMAT, Q8_FORMAT, Q8_PAIRS_FORMAT, TILED, Packing

CAPACITY = 23
Make = Callable[[np.random.Generator], Case]


def _product(build: Callable[..., tuple[Any, ...]], **extents: int) -> Make:
    """A launch of `linear` or `linear_silu_mul`."""

    def make(rng: np.random.Generator) -> Case:
        case = build(rng, rows=CAPACITY, capacity=CAPACITY, width=320, **extents)[0]
        assert isinstance(case, Case)
        return case

    return make


MAKE: dict[str, Make] = {}
for packing in TILED:
    for format_ in layer_cases.activation_formats(packing):
        MAKE[f"linear_{packing.name}_{format_}"] = _product(
            layer_cases.linear, packing=packing, format_=format_, outputs=215, bias=True
        )
        MAKE[f"silu_{packing.name}_{format_}"] = _product(
            layer_cases.linear_silu_mul, packing=packing, format_=format_,
            out_format=Q8_FORMAT, outputs=160,
        )  # fmt: skip
MAKE["embed"] = _product(layer_cases.embed, packing=Packing.TILE16_Q8_0, vocab=77)
_ROWS: dict[str, Any] = {"rows": CAPACITY, "capacity": CAPACITY}
_HEADS: dict[str, Any] = {**_ROWS, "q_heads": 9, "kv_heads": 3, "head_dim": 64}
MAKE["rms_norm"] = partial(layer_cases.rms_norm, format_=BF16_FORMAT, width=333, **_ROWS)
MAKE["rope"] = partial(layer_cases.rope_and_cache, norms=True, **_HEADS)
for window in (0, 45):
    MAKE[f"attention_{window}"] = partial(layer_cases.attention, window=window, **_HEADS)


def _in_pairs(make: Make) -> Make:
    return lambda rng: layer_cases.in_pairs(make(rng))


for name in ("rope", "attention_0", "attention_45"):
    MAKE[f"{name}_bf16"] = _in_pairs(MAKE[name])
_SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "all": {"temperature": 0.9},
    "nucleus": {"temperature": 0.9, "top_p": 0.9, "top_k": 100, "min_p": 0.001},
}
for name, parameters in _SAMPLING.items():
    MAKE[f"sample_{name}"] = partial(request_cases.sample, vocab=3001, **_ROWS, **parameters)
    MAKE[f"sample_processed_{name}"] = partial(
        sampling.sample_processed, capacity=CAPACITY, vocab=3001, **parameters
    )
for name, kernel in (("score", request_cases.score), ("score_ranked", request_cases.score_ranked)):
    MAKE[name] = partial(kernel, vocab=3001, **_ROWS)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", MAKE)
def test_a_row_is_the_same_in_any_company(name: str, instruction_set: str) -> None:
    case = MAKE[name](np.random.default_rng(1))
    if name.startswith("attention"):
        # A prompt's rows at consecutive positions share tiles; alone they don't.
        case.operands["slot"][:14] = 1
        case.operands["positions"][:14] = np.arange(50, 64)
    outputs = [o for o in (*SCORES, "tokens", "logprobs", "qkv") if o in case.operands]
    outputs = [o for o in outputs if not (o == "tokens" and name == "embed")]
    together = run(case, instruction_set, threads=2)
    for threads in (1, 3):
        again = run(case, instruction_set, threads=threads)
        for operand in outputs:
            assert again[operand].tobytes() == together[operand].tobytes(), (threads, operand)
    rng = np.random.default_rng(2)
    groups = [[row] for row in (0, 7, CAPACITY - 1)]
    groups += [sorted(rng.choice(CAPACITY, size, replace=False)) for size in (2, 3, 4, 5, 11)]
    groups.append(list(rng.permutation(CAPACITY)))
    for picked in groups:
        capacity = len(picked) + int(rng.integers(0, 3))
        apart = run(rows_of(case, picked, capacity), instruction_set, threads=2)
        for operand in outputs:
            for at, row in enumerate(picked):
                assert apart[operand][at].tobytes() == together[operand][row].tobytes(), (
                    operand, picked, row,
                )  # fmt: skip


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_outputs_do_not_depend_on_the_matrix_around_them(instruction_set: str) -> None:
    # The first tiles of a taller matrix give the same bits as a matrix of those tiles alone.
    rng = np.random.default_rng(3)
    case, matrix, _ = layer_cases.linear(
        rng, Packing.TILE16_BF16, BF16_FORMAT, rows=5, capacity=5, width=64, outputs=16 * 7
    )
    whole = run(case, instruction_set)["out"]
    for tiles in (1, 2, 3, 5):
        part = case.with_operands(
            weight=matrix.data[: tiles * 64 * 32], out=np.zeros((5, 16 * tiles), np.float32)
        ).with_integers(outputs=16 * tiles)
        np.testing.assert_array_equal(run(part, instruction_set)["out"], whole[:, : 16 * tiles])


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize(
    "packing",
    [Packing.TILE16_Q4_1, Packing.TILE16_Q6_K, Packing.TILE16_BF16, Packing.TILE16_Q4_PAIRS],
)
@pytest.mark.parametrize("build", [layer_cases.linear, layer_cases.linear_silu_mul])
def test_many_rows_are_divided_without_a_trace(
    build: Callable[..., tuple[Any, ...]], packing: Packing, instruction_set: str
) -> None:
    # Past a number of rows, launches are divided over rows too.
    extents: dict[str, Any] = {"rows": 150, "capacity": 150, "width": 64}
    if build is layer_cases.linear:
        extents["outputs"] = 215
    else:
        extents |= {"outputs": 192, "out_format": Q8_FORMAT}
    format_ = layer_cases.activation_formats(packing)[0]
    if format_ == Q8_PAIRS_FORMAT and build is layer_cases.linear_silu_mul:
        extents["out_format"] = Q8_PAIRS_FORMAT
    case: Case = build(np.random.default_rng(4), packing=packing, format_=format_, **extents)[0]
    whole = run(case, instruction_set, threads=1)["out"]
    for threads in (2, 3, 5):
        again = run(case, instruction_set, threads=threads)["out"]
        assert again.tobytes() == whole.tobytes(), threads
    for picked in ([0], [149], list(range(64)), list(range(3, 68)), list(range(20, 150))):
        apart = run(rows_of(case, picked, len(picked)), instruction_set)["out"]
        assert apart.tobytes() == whole[picked].tobytes(), picked
