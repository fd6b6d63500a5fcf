"""Places and positions of pictures in a prompt, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import RequestError
from helios.frontend.images.smart_resize import Patches
from helios.frontend.images.three_rows import PATCH_POSITIONS, PATCHES, lay_out
from tests.frontend.images.settings import settings

WHICH = settings()


def _patches(rows: int, columns: int) -> Patches:
    return Patches(np.zeros((rows * columns, 1176), np.float32), rows, columns)


@pytest.mark.clause("FRONT-9")
def test_a_picture_between_texts() -> None:
    laid = lay_out([1, 7, 9, 8, 2], [_patches(4, 6)], WHICH)
    assert laid.tokens == [1, 7, *[9] * 6, 8, 2]
    assert laid.feature_indices == [-1, -1, *range(6), -1, -1]
    assert laid.spans == ((1, 9),)
    assert laid.positions.tolist() == [
        [0, 0, 0],
        [1, 1, 1],
        [2, 2, 2],
        [2, 2, 3],
        [2, 2, 4],
        [2, 3, 2],
        [2, 3, 3],
        [2, 3, 4],
        [5, 5, 5],
        [6, 6, 6],
    ]
    assert laid.next_position == 7
    (tensors,) = laid.tensors
    assert tensors[PATCHES].shape == (24, 1176)
    assert tensors[PATCH_POSITIONS][:5].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]


@pytest.mark.clause("FRONT-9")
@given(
    st.lists(
        st.one_of(st.integers(10, 20), st.tuples(st.integers(1, 4), st.integers(1, 4))),
        max_size=12,
    )
)
def test_positions_against_loops(parts: list[int | tuple[int, int]]) -> None:
    tokens = [9 if isinstance(part, tuple) else part for part in parts]
    images = [_patches(2 * p[0], 2 * p[1]) for p in parts if isinstance(p, tuple)]
    expected: list[tuple[int, int, int]] = []
    features: list[int] = []
    following = 0
    for part in parts:
        start = following
        if isinstance(part, int):
            expected.append((start, start, start))
            features.append(-1)
            following += 1
            continue
        for y in range(part[0]):
            for x in range(part[1]):
                expected.append((start, start + y, start + x))
                features.append(1 + max(features, default=-1))
        following = 1 + max(max(place) for place in expected)
    if not tokens:
        return
    laid = lay_out(tokens, images, WHICH)
    assert list(map(tuple, laid.positions.tolist())) == expected
    assert laid.feature_indices == features
    assert laid.next_position == following
    assert len(laid.tokens) == len(expected)


@pytest.mark.parametrize("tokens", [[1, 2], [9, 1, 9]])
def test_pictures_and_places_must_agree(tokens: list[int]) -> None:
    with pytest.raises(RequestError, match="places"):
        lay_out(tokens, [_patches(2, 2)], WHICH)
