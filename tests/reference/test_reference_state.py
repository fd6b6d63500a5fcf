"""Request state: admission, pending tokens, commit and its completion rows."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS
from helios.runtime.reference.state import commit, initialize_requests, load_pending, scatter_i32
from helios.runtime.rounds import DeviceFinish, LaneError

SLOTS = 3


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def admitted(
    slot: int = 1, generation: int = 4, consumed: int = 6, emitted: int = 0, limit: int = 3,
    eos: tuple[int, ...] = (2,),
) -> np.ndarray:  # fmt: skip
    """State bytes with one request admitted."""
    state = np.zeros(SLOTS * 128, np.uint8)
    ids = i32(*eos, *[-1] * (16 - len(eos)))
    initialize_requests(
        i32(1), i32(slot), i32(generation), i32(consumed), i32(emitted), i32(limit),
        np.array([0x89ABCDEF, 0x01234567], np.uint32), f32(0.5), i32(40), f32(0.9), f32(0.05), ids,
        state, capacity=1,
    )  # fmt: skip
    return state


def row_of(state: np.ndarray, slot: int) -> bytes:
    return state[slot * 128 : (slot + 1) * 128].tobytes()


def test_initialize_lays_a_row_out_as_documented() -> None:
    state = admitted()
    expected = struct.pack(
        "<6iIIfffi16x16i", 0, 6, 0, 3, 4, 0, 0x89ABCDEF, 0x01234567, 0.5, 0.9, 0.05, 40, 2,
        *[-1] * 15,
    )  # fmt: skip
    assert row_of(state, 1) == expected
    assert not any(row_of(state, 0))
    assert not any(row_of(state, 2))


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_initialize_of_a_slot_out_of_range_writes_nothing(slot: int) -> None:
    assert not admitted(slot=slot).any()


def run_commit(
    state: np.ndarray, slot: int = 1, generation: int = 4, token: int = 7,
    query_length: int | None = None, sampled: int | None = None,
) -> tuple[list[int], int, float]:  # fmt: skip
    lanes = np.full(COMPLETION_LANE_COLUMNS, 99, np.int32)
    out_tokens, out_logprobs = i32(99), f32(99)
    commit(
        i32(1), i32(slot), i32(generation),
        None if query_length is None else i32(query_length),
        None if sampled is None else i32(sampled),
        i32(token), f32(-0.25), state, lanes, out_tokens, out_logprobs, capacity=1,
    )  # fmt: skip
    return lanes.tolist(), int(out_tokens[0]), float(out_logprobs[0])


def lane_row(
    slot: int = 1, generation: int = 4, emitted: int = 1, consumed: int = 7, finish: int = 0,
    error: int = 0,
) -> list[int]:  # fmt: skip
    return [slot, generation, emitted, consumed, finish, -1, -1, 0, 0, error, 0, 0]


def test_commit_of_a_decode_step() -> None:
    state = admitted()
    assert run_commit(state) == (lane_row(), 7, -0.25)
    assert struct.unpack_from("<6i", row_of(state, 1)) == (7, 7, 1, 3, 4, 0)


def test_commit_of_a_chunk_that_does_not_sample() -> None:
    state = admitted(consumed=0)
    lane, token, _ = run_commit(state, query_length=5, sampled=0)
    assert lane == lane_row(emitted=0, consumed=5)
    assert token == -1
    assert struct.unpack_from("<6i", row_of(state, 1)) == (0, 5, 0, 3, 4, 0)


def test_commit_never_takes_the_unused_marker_for_an_end() -> None:
    assert run_commit(admitted(), token=-1) == (lane_row(), -1, -0.25)


@pytest.mark.parametrize(
    ("token", "emitted", "finish"),
    [(2, 0, DeviceFinish.EOS), (7, 2, DeviceFinish.LIMIT), (2, 2, DeviceFinish.EOS)],
)
def test_commit_finishes(token: int, emitted: int, finish: DeviceFinish) -> None:
    state = admitted(emitted=emitted)
    lane, out_token, _ = run_commit(state, token=token)
    assert lane == lane_row(finish=finish)
    assert out_token == token
    # A finished lane can't go on: nothing of it changes any more.
    before = row_of(state, 1)
    lane, out_token, _ = run_commit(state)
    assert lane == lane_row(emitted=0, error=LaneError.ALREADY_FINISHED)
    assert out_token == -1
    assert row_of(state, 1) == before


@pytest.mark.parametrize(("slot", "generation"), [(1, 5), (0, 4), (SLOTS, 4), (-1, 4), (SLOTS, 0)])
def test_commit_refuses_a_stale_lane(slot: int, generation: int) -> None:
    state = admitted()
    before = state.copy()
    lane, token, _ = run_commit(state, slot=slot, generation=generation)
    assert (lane[:3], lane[9]) == ([slot, generation, 0], LaneError.STALE_GENERATION)
    assert token == -1
    np.testing.assert_array_equal(state, before)


def test_load_pending() -> None:
    state = admitted()
    run_commit(state, token=31)
    tokens, positions = i32(9, 9, 9, 9), i32(9, 9, 9, 9)
    load_pending(i32(3), i32(1, 1, SLOTS, 0), i32(4, 3, 4, 0), state, tokens, positions, capacity=4)
    assert tokens.tolist() == [31, 0, 0, 9]
    assert positions.tolist() == [7, -1, -1, 9]


def test_load_pending_of_a_finished_lane() -> None:
    state = admitted()
    run_commit(state, token=2)
    tokens, positions = i32(9), i32(9)
    load_pending(i32(1), i32(1), i32(4), state, tokens, positions, capacity=1)
    assert (tokens[0], positions[0]) == (0, -1)


def test_scatter_keeps_order_and_skips_what_lies_outside() -> None:
    target = np.zeros(4, np.int32)
    scatter_i32(i32(5), i32(1, 4, -1, 1, 0), i32(10, 11, 12, 13, 14), target, capacity=4)
    assert target.tolist() == [0, 13, 0, 0]
