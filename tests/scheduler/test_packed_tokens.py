"""A prompt is packed if all of its ids are the model's."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from helios.scheduler.packed_tokens import packed

IDS = st.integers(-3, 12) | st.sampled_from([2**31, -(2**63), 2**64, 2**80])


@given(
    tokens=st.lists(IDS, min_size=1, max_size=9).map(tuple),
    limit=st.integers(1, 2**31 - 1),
    times=st.sampled_from([1, 600]),
)
def test_packed_ids_are_all_within_the_limit(
    tokens: tuple[int, ...], limit: int, times: int
) -> None:
    tokens *= times
    inside = all(0 <= token < limit for token in tokens)
    assert packed(tokens, limit) == (array("i", tokens) if inside else None)
