"""The workspace planner: tensors alive together never overlap, and the arena stays small."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ignition.capture.planner import ALIGNMENT_NBYTES, Interval, Tensor, aligned, plan


@st.composite
def tensor_lists(draw: st.DrawFn) -> list[Tensor]:
    count = draw(st.integers(0, 14))
    tensors = []
    for index in range(count):
        intervals = draw(
            st.lists(
                st.builds(
                    lambda program, first, length: Interval(program, first, first + length),
                    st.integers(0, 2),
                    st.integers(0, 12),
                    st.integers(0, 6),
                ),
                min_size=1,
                max_size=4,
            )
        )
        tensors.append(Tensor(f"t{index}", draw(st.integers(1, 2000)), tuple(intervals)))
    return tensors


def alive_together(a: Tensor, b: Tensor) -> bool:
    moments = {(i.program, at) for i in a.intervals for at in range(i.first, i.last + 1)}
    return any((i.program, at) in moments for i in b.intervals for at in range(i.first, i.last + 1))


@given(tensor_lists())
def test_no_two_live_tensors_overlap(tensors: list[Tensor]) -> None:
    offsets = plan(tensors).offsets
    for a, b in combinations(tensors, 2):
        if alive_together(a, b):
            apart = (
                offsets[a.name] + a.nbytes <= offsets[b.name]
                or offsets[b.name] + b.nbytes <= offsets[a.name]
            )
            assert apart, (a, b, offsets)


@given(tensor_lists())
def test_the_arena_holds_every_tensor_and_is_no_larger_than_their_sum(
    tensors: list[Tensor],
) -> None:
    planned = plan(tensors)
    assert set(planned.offsets) == {tensor.name for tensor in tensors}
    for tensor in tensors:
        offset = planned.offsets[tensor.name]
        assert offset % ALIGNMENT_NBYTES == 0
        assert 0 <= offset <= planned.arena_nbytes - tensor.nbytes
    assert planned.arena_nbytes <= sum(aligned(tensor.nbytes) for tensor in tensors)


@given(tensor_lists(), st.randoms(use_true_random=False))
def test_the_plan_depends_on_the_tensors_alone(
    tensors: list[Tensor], shuffler: random.Random
) -> None:
    shuffled = list(tensors)
    shuffler.shuffle(shuffled)
    assert plan(shuffled) == plan(tensors)


def test_tensors_of_different_moments_share_bytes() -> None:
    first = Tensor("first", 640, (Interval(0, 0, 1),))
    second = Tensor("second", 640, (Interval(0, 2, 3),))
    other_program = Tensor("other", 640, (Interval(1, 0, 3),))
    assert plan([first, second, other_program]).arena_nbytes == 640


def test_a_hole_in_a_lifetime_is_used() -> None:
    """The buffer of a role holds a value in each layer; in between another may lie there."""
    role = Tensor("role", 640, (Interval(0, 0, 1), Interval(0, 4, 5)))
    between = Tensor("between", 64, (Interval(0, 2, 3),))
    assert plan([role, between]).offsets == {"role": 0, "between": 0}


def test_the_smallest_gap_that_fits_is_taken() -> None:
    # Around the three pillars that live throughout, gaps of 256 and 128 bytes open at launch 1.
    always, early = (Interval(0, 0, 1),), (Interval(0, 0, 0),)
    tensors = [
        Tensor("a", 1024, always),
        Tensor("b", 512, early),
        Tensor("c", 448, always),
        Tensor("d", 384, early),
        Tensor("e", 320, always),
        Tensor("late", 300, (Interval(0, 1, 1),)),
    ]
    offsets = plan(tensors).offsets
    assert offsets["d"] == 1024 + 512 + 448
    assert offsets["late"] == offsets["d"], "the gap of 384 bytes beats that of 512"


def test_nothing_to_plan() -> None:
    assert plan([]).arena_nbytes == 0


@pytest.mark.parametrize(("nbytes", "expected"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_sizes_are_rounded_up(nbytes: int, expected: int) -> None:
    assert aligned(nbytes) == expected
