"""The kernels on request state: staging scatters, admission, pending tokens, commit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.native import request_cases
from tests.native.harness import INSTRUCTION_SETS, Case, run
from tests.native.request_cases import LANE
from tests.native.states import STATE, i32

ISA = INSTRUCTION_SETS[0]
Record = NDArray[np.void]


def test_scatter_writes_in_order_and_inside() -> None:
    case = request_cases.scatter_i32(
        np.random.default_rng(0), rows=5, capacity=6, size=6
    ).with_operands(index=i32(2, -1, 6, 2, 0, 5), value=i32(10, 11, 12, 13, 14, 15))
    assert run(case, ISA)["target"].tolist() == [14, -5, 13, -5, -5, -5]


def test_initialize_requests() -> None:
    case = request_cases.initialize_requests(np.random.default_rng(1), rows=3, capacity=4)
    case.operands["slot"][:] = [2, -1, 0, 1]
    got = run(case, ISA)["state"]
    state = got.view(STATE).reshape(-1)
    for row, slot in ((0, 2), (2, 0)):
        for name in ("generation", "consumed", "emitted", "output_limit", "temperature",
                     "top_k", "top_p", "min_p"):  # fmt: skip
            assert state[slot][name] == case.operands[name][row], name
        assert state[slot]["seed"] == int(case.operands["seed"][row].view(np.uint64)[0])
        assert state[slot]["eos_ids"].tolist() == case.operands["eos_ids"][row].tolist()
        assert state[slot]["pending_token"] == state[slot]["finished"] == 0
        assert bytes(got[slot][48:64]) == bytes(16)
    assert (got[[1, 3]] == 7).all()


def test_load_pending() -> None:
    case = request_cases.load_pending(np.random.default_rng(2), rows=5, capacity=6)
    case.operands["slot"][4] = 6
    got = run(case, ISA)
    state = case.operands["state"].view(STATE).reshape(-1)
    # Lane 1 is finished, lane 2 has another generation, lane 4 no slot, lane 5 isn't live.
    pending = state["pending_token"]
    assert got["tokens"].tolist() == [pending[0], 0, 0, pending[3], 0, -5]
    assert got["positions"].tolist() == [5, -1, -1, 35, -1, -5]


def committed(case: Case) -> tuple[Record, Record, list[int], list[float]]:
    got = run(case, ISA)
    lanes = got["lanes"].view(LANE).reshape(-1)
    state = got["state"].view(STATE).reshape(-1)
    return lanes, state, got["out_tokens"][:, 0].tolist(), got["out_logprobs"][:, 0].tolist()


def test_commit_advances_running_lanes() -> None:
    case = request_cases.commit(np.random.default_rng(3), rows=4, capacity=4).with_operands(
        query_length=i32(3, 1, 1, 8),
        sampled=i32(1, 1, 1, 0),
        tokens=i32(40, 41, 42, 43),
        logprobs=np.array([-1, -2, -3, -4], np.float32),
    )
    before = case.operands["state"].view(STATE).reshape(-1)
    before["emitted"] = [0, 4, 9, 2]
    before["output_limit"] = [5, 5, 10, 5]
    before["eos_ids"][2, 15] = 42
    lanes, state, tokens, logprobs = committed(case)
    assert tokens == [40, 41, 42, -1]
    assert logprobs == [-1, -2, -3, 0]
    assert state["pending_token"].tolist() == [40, 41, 42, before["pending_token"][3]]
    assert state["consumed"].tolist() == [8, 16, 26, 43]
    assert state["emitted"].tolist() == [1, 5, 10, 2]
    # An end-of-sequence token at the limit is an end of sequence.
    assert state["finished"].tolist() == [0, 2, 1, 0]
    assert lanes["slot"].tolist() == [0, 1, 2, 3]
    assert lanes["generation"].tolist() == [1, 2, 3, 4]
    assert lanes["emitted"].tolist() == [1, 1, 1, 0]
    assert lanes["consumed"].tolist() == [8, 16, 26, 43]
    assert lanes["finish"].tolist() == [0, 2, 1, 0]
    assert lanes["error"].tolist() == [0, 0, 0, 0]
    for name, value in (("draft_cursor", -1), ("model_reserved", -1), ("offered", 0),
                        ("accepted", 0), ("zero0", 0), ("zero1", 0)):  # fmt: skip
        assert lanes[name].tolist() == [value] * 4, name


def test_commit_without_lengths_consumes_one_and_samples() -> None:
    case = request_cases.commit(np.random.default_rng(4), rows=2, capacity=2)
    operands = {
        name: array
        for name, array in case.operands.items()
        if name not in ("query_length", "sampled")
    }
    lanes, state, tokens, _ = committed(Case("commit", operands, case.integers))
    assert state["consumed"].tolist() == [6, 16]
    assert tokens == case.operands["tokens"].tolist()
    assert lanes["emitted"].tolist() == [1, 1]


def test_commit_leaves_stale_and_finished_lanes_alone() -> None:
    case = request_cases.commit(np.random.default_rng(5), rows=4, capacity=4)
    case.operands["generation"][0] += 1
    case.operands["state"].view(STATE).reshape(-1)["finished"][1] = 2
    case.operands["slot"][2:] = [-1, 4]
    lanes, state, tokens, logprobs = committed(case)
    assert lanes["error"].tolist() == [1, 2, 1, 1]
    assert lanes["emitted"].tolist() == [0] * 4
    assert lanes["finish"].tolist() == [0] * 4
    assert lanes["consumed"].tolist() == [5, 15, 0, 0]
    assert tokens == [-1] * 4
    assert logprobs == [0] * 4
    assert state.tobytes() == case.operands["state"].tobytes()


def test_commit_never_takes_the_unused_marker_for_an_end() -> None:
    case = request_cases.commit(np.random.default_rng(6), rows=1, capacity=1)
    case.operands["tokens"][0] = -1
    lanes, *_ = committed(case)
    assert lanes["finish"].tolist() == [0]


def test_set_pending_reaches_running_lanes_of_its_generation_alone() -> None:
    case = request_cases.set_pending(np.random.default_rng(7), rows=5, capacity=6)
    case.operands["slot"][4] = 6
    before = case.operands["state"].view(STATE).reshape(-1)
    after = run(case, ISA)["state"].view(STATE).reshape(-1)
    # Lane 1 is finished, lane 2 has another generation, lane 4 no slot, lane 5 isn't live.
    expected = before["pending_token"].copy()
    expected[[0, 3]] = case.operands["token"][[0, 3]]
    assert after["pending_token"].tolist() == expected.tolist()
    after["pending_token"] = before["pending_token"]
    assert after.tobytes() == before.tobytes()


def test_merge_pending_puts_decoding_lanes_first() -> None:
    case = request_cases.merge_pending(
        np.random.default_rng(8), rows=7, capacity=8, lanes=4, decode_lanes=3
    )
    pending = case.operands["state"].view(STATE).reshape(-1)["pending_token"]
    tokens, positions = case.operands["tokens"], case.operands["positions"]
    got = run(case, ISA)
    # Lane 1 is finished, lane 2 has another generation: both are inert.
    assert got["out_tokens"].tolist() == [pending[0], 0, 0, *tokens[3:7], -5]
    assert got["out_positions"].tolist() == [5, -1, -1, *positions[3:7], -5]


def test_merge_pending_takes_no_more_lanes_than_there_are() -> None:
    case = request_cases.merge_pending(
        np.random.default_rng(9), rows=8, capacity=8, lanes=4, decode_lanes=100
    )
    got = run(case, ISA)
    assert got["out_tokens"][4:].tolist() == case.operands["tokens"][4:].tolist()
    nobody = run(case.with_operands(decode_lanes=i32(-1)), ISA)
    assert nobody["out_tokens"].tolist() == case.operands["tokens"].tolist()
