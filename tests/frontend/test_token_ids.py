"""Checks of whole lists say what looking at each value says."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.token_ids import first_outside, whole_numbers

IDS = st.integers(-3, 12) | st.sampled_from([2**31, -(2**63), 2**64, 2**80])


class Named(IntEnum):
    """An integer that Python counts among its own."""

    ID = 3


@given(values=st.lists(IDS | st.booleans() | st.floats() | st.text() | st.none(), max_size=9))
def test_whole_numbers_are_integers_and_no_booleans(values: list[object]) -> None:
    plain = all(type(value) is int for value in values)
    assert whole_numbers(values) == (values if plain else None)


def test_whole_numbers_are_a_list_of_their_own_and_pythons() -> None:
    values = [1, Named.ID]
    found = whole_numbers(values)
    assert found == [1, 3]
    assert found is not values
    assert list(map(type, found)) == [int, int]


@pytest.mark.parametrize("value", [np.int64(3), 2.0, "3", b"3", None, True, [1]])
def test_one_other_value_is_enough(value: object) -> None:
    assert whole_numbers([1, value, 2]) is None


@given(tokens=st.lists(IDS, max_size=9) | st.lists(IDS, max_size=9).map(tuple), limit=IDS)
def test_the_first_id_outside_is_found(tokens: list[int], limit: int) -> None:
    limit = min(max(limit, 1), 2**31)
    outside = [token for token in tokens if not 0 <= token < limit]
    assert first_outside(tokens, limit) == (outside[0] if outside else None)


def test_ids_of_other_kinds_are_compared_as_numbers() -> None:
    assert first_outside([np.int64(3), np.int64(5)], 5) == 5  # type: ignore[list-item]
    assert first_outside([np.int64(3), np.int64(4)], 5) is None  # type: ignore[list-item]
