"""Projections of many rows that rotate and store what they make: the bits of the launches one by
one, and when the two are one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu import rotated_trials
from tests.ignition.cuda.interpreted import (
    ELSEWHERE,
    WITHOUT_TRITON,
    fused,
    resources,
    run_fused,
)
from tests.ignition.cuda.test_fused_kernels import one_by_one
from tests.native.harness import Case
from tests.native.rotated_cases import rotated_projection

pytest.importorskip("triton", reason=WITHOUT_TRITON)

from ignition.kernels.cuda.compile import KernelRequest, compile
from ignition.kernels.cuda.launches import ARCHITECTURES, CatalogueLaunch
from tests.ignition.cuda import rotated_variants

VARIANTS = "tests.ignition.cuda.rotated_variants"
TINY = {"q_heads": 4, "kv_heads": 2, "head_dim": 16}
# Heads of a tile that are past the last one, tiles whose heads are of two or three kinds, two tiles
# of rows, the last with few live ones.
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"rows": 30, "capacity": 33, "width": 72, **TINY},
    "135M": {
        "rows": 140, "capacity": 260, "width": 96, "q_heads": 9, "kv_heads": 3, "head_dim": 64
    },
    "8B": {
        "rows": 129, "capacity": 129, "width": 64, "q_heads": 3, "kv_heads": 1, "head_dim": 128
    },
    "none": {"rows": 0, "capacity": 40, "width": 64, **TINY},
    # So many tiles that it is what the fusion makes, though few rows live.
    "many": {
        "rows": 30, "capacity": 512, "width": 64, "q_heads": 32, "kv_heads": 4, "head_dim": 64
    },
}  # fmt: skip
INPUTS = {
    "plain": {},
    "bias": {"bias": True},
    "weighed": {"weighed": True},
    "weighed, bias": {"weighed": True, "bias": True},
    "norms": {"norms": True, "weighed": True},
}


def cases(shape: str, **options: Any) -> list[Case]:
    return rotated_projection(np.random.default_rng(len(shape)), **{**SHAPES[shape], **options})


def same_bits(pair: list[Case], **options: Any) -> None:
    alone = one_by_one(pair)[1]
    together = run_fused(pair, unread=[pair[1].operands["qkv"]], **options)[1]
    assert np.isnan(together["qkv"]).all()
    for name in ("queries", "k_plane", "v_plane"):
        assert together[name].tobytes() == alone[name].tobytes(), name


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("tile", ["large", "medium"])
@pytest.mark.parametrize("shape", sorted(SHAPES.keys() - {"many"}))
def test_bits_are_those_of_the_two_launches(shape: str, tile: str, inputs: str) -> None:
    same_bits(cases(shape, **INPUTS[inputs]), lowering=f"{VARIANTS}:{tile}")


@pytest.mark.parametrize(("weighed", "descending"), [(False, False), (True, True)])
def test_rows_that_have_room_for_many_are_projected_and_rotated_at_once(
    weighed: bool, descending: bool
) -> None:
    pair = cases("many", weighed=weighed)
    kernels = fused(pair, unread=[pair[1].operands["qkv"]])
    assert kernels is not None
    assert [kernel.request.function.__name__ for kernel in kernels] == ["project_and_rotate"]
    same_bits(pair, descending=descending)


def test_what_is_read_again_or_belongs_to_other_rows_stays_apart() -> None:
    projection, rope = cases("many")
    qkv = rope.operands["qkv"]
    assert fused([projection, rope], unread=[qkv]) is not None
    assert fused([projection, rope]) is None
    other = rope.with_operands(qkv=qkv.copy())
    assert fused([projection, other], unread=[qkv]) is None
    other = rope.with_operands(rows=rope.operands["rows"].copy())
    assert fused([projection, other], unread=[qkv]) is None
    assert fused([projection.with_integers(accumulate=1), rope], unread=[qkv]) is None


def test_heads_with_norms_few_rows_and_codes_stay_apart() -> None:
    for options in ({"norms": True}, {"capacity": 511}, {"q_heads": 30}):
        pair = cases("many", **options)
        assert fused(pair, unread=[pair[1].operands["qkv"]]) is None, options
    projection, rope = cases("many", width=128)
    codes = projection.with_integers(packing=11)
    assert fused([codes, rope], unread=[rope.operands["qkv"]]) is None


@pytest.mark.parametrize("size", rotated_trials.SIZES)
def test_trials_have_the_tile_that_they_say(size: str) -> None:
    trial = rotated_trials.trials()[f"rotated projection {size} plain"](np.random.default_rng(0))
    run = trial.runs["129 together"]
    kernels = fused(list(run.cases), unread=run.unread)
    assert kernels is not None
    (kernel,) = kernels
    assert kernel.request.constants["BN"] == int(size.split()[1])
    assert set(kernel.arguments) == set(kernel.request.arguments)


def request(model: str, tile: str, *, weighed: bool) -> KernelRequest:
    """Of a real model's shape, for 8,192 rows."""
    width, q_heads, kv_heads, head_dim = {
        "8B": (4096, 32, 8, 128), "135M": (576, 9, 3, 64)
    }[model]  # fmt: skip
    # Attributes alone decide; operands may be small.
    projection, rope = cases("tiny", weighed=weighed)
    outputs = (q_heads + 2 * kv_heads) * head_dim
    heads = {"q_heads": q_heads, "kv_heads": kv_heads, "head_dim": head_dim}
    projection = projection.with_integers(capacity=8192, width=width, outputs=outputs)
    rope = rope.with_integers(capacity=8192, **heads)
    launches = [
        CatalogueLaunch(
            case.kernel, case.integers, case.floats, frozenset(case.operands),
            ARCHITECTURES["sm_90"],
        )
        for case in (projection, rope)
    ]  # fmt: skip
    launches[0] = replace(launches[0], settled=frozenset({"rows"}))
    (kernel,) = getattr(rotated_variants, tile)(*launches)
    return kernel.request


@pytest.mark.parametrize(
    ("model", "tile", "spilled"), [("8B", "large", 64), ("135M", "large", 0), ("135M", "medium", 0)]
)
@pytest.mark.parametrize("weighed", [False, True])
def test_what_is_compiled_keeps_its_sums_in_registers(
    model: str, tile: str, spilled: int, weighed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ELSEWHERE, raising=False)
    kernel = compile(request(model, tile, weighed=weighed))
    assert resources(kernel)["STACK"] <= spilled
