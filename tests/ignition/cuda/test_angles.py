"""Sines and cosines of the angles of positions, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda.interpreted import WITHOUT_TRITON, run
from tests.native.launches import Case
from tests.native.states import i32

pytest.importorskip("triton", reason=WITHOUT_TRITON)

from tests.ignition.cuda.angle_kernels import BLOCK

QUARTER_TURN = np.pi / 2


def errors(angles: np.ndarray) -> np.ndarray:
    """The larger error of each angle's cosine and sine; angles f32, a multiple of BLOCK."""
    count = len(angles)
    case = Case(
        "scatter_i32",
        {
            "rows": i32(count), "index": np.zeros(count, np.int32), "value": angles.view(np.int32),
            "target": np.full(2 * count, -1, np.int32),
        },
        {"capacity": count},
    )  # fmt: skip
    target = run(case, lowering="tests.ignition.cuda.angle_kernels:angles")["target"]
    found = target.view(np.float32).reshape(count, 2).astype(np.float64)
    exact = angles.astype(np.float64)
    return np.abs(found - np.stack([np.cos(exact), np.sin(exact)], axis=1)).max(axis=1)


@pytest.mark.parametrize("theta", [1e4, 5e5])
@pytest.mark.parametrize(
    ("last", "bound"),
    [(255, 1e-7), (8191, 1e-7), (131_071, 1e-7), ((1 << 20) - 1, 1e-7), (4_000_000, 2e-7)],
)
def test_angles_of_any_position_are_as_good(last: int, bound: float, theta: float) -> None:
    rng = np.random.default_rng(last)
    position = rng.integers(0, last + 1, 64 * BLOCK)
    position[:4] = 0, 1, last - 1, last
    frequency = theta ** -(rng.integers(0, 64, len(position)) / 64)
    frequency[:4] = 1
    angles = position.astype(np.float32) * frequency.astype(np.float32)
    assert errors(angles).max() < bound


def test_every_whole_angle_up_to_the_last_position() -> None:
    assert errors(np.arange(131_072, dtype=np.float32)).max() < 1e-7


def test_angles_beside_ends_of_quarter_turns() -> None:
    """Where a quarter turn more or less is taken off, and where nearly nothing is left."""
    rng = np.random.default_rng(0)
    halves = rng.integers(-(1 << 18), 1 << 18, 8 * BLOCK) / 2
    angles = (halves * QUARTER_TURN).astype(np.float32)
    beside = [np.nextafter(angles, np.float32(end)) for end in (-np.inf, np.inf)]
    for each in (angles, *beside):
        assert errors(each).max() < 1e-7
