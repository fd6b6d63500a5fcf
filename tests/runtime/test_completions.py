"""Reading completion records, and telling rows that can't be true."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from helios.errors import ContractError
from helios.runtime.capacities import plan_memory
from helios.runtime.completions import CompletionReader
from helios.runtime.devices.null import NullDevice
from helios.runtime.manifest import LeadingCount
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.rounds import DeviceFinish, LaneCompletion, LaneError
from helios.schema import contract_pb2
from helios.schema import execution_pb2 as pb
from tests.runtime.sample_manifest import sample_manifest, sample_weights

COLUMNS = {"slot": 0, "generation": 1, "emitted": 2, "consumed": 3, "finish": 4, "error": 9}


class Record:
    """The completion record of decode.b4 on a device that runs nothing."""

    def __init__(self) -> None:
        manifest = decode_manifest(sample_manifest())
        plan = plan_memory(manifest, {LeadingCount.REQUEST_SLOTS: 4, LeadingCount.CACHE_PAGES: 1})
        device = NullDevice()
        device.allocate(plan, {n: memoryview(b) for n, b in sample_weights().items()})
        program = next(p for p in manifest.programs if p.name == "decode.b4")
        self.reader = CompletionReader(program, manifest, plan, device.view, 50)
        self._device = device
        self._index = manifest.buffer_index

    def array(self, name: str, frame: int, dtype: type = np.int32) -> np.ndarray:
        raw = self._device.view(self._index[f"completion.{name}"], frame)
        return raw.view(dtype).reshape(4, -1)

    def write(
        self, frame: int, lane: int, token: int = 7, logprob: float = -0.5, **row: int
    ) -> None:
        lanes = self.array("lanes", frame)[lane]
        lanes[[5, 6]] = -1
        for name, value in {"slot": 2, "generation": 1, "emitted": 1, **row}.items():
            lanes[COLUMNS[name]] = value
        self.array("tokens", frame)[lane] = token
        self.array("logprobs", frame, np.float32)[lane] = logprob


def test_lanes_arrive_in_order_from_their_frame() -> None:
    record = Record()
    record.write(1, 0, slot=3, generation=9, consumed=12, finish=1)
    record.write(1, 1, slot=0, emitted=0, error=2, token=-1)
    assert record.reader.read(1, 2) == (
        LaneCompletion(3, 9, 12, (7,), (-0.5,), DeviceFinish.EOS, LaneError.NONE, -1, -1),
        LaneCompletion(0, 1, 0, (), (), DeviceFinish.RUNNING, LaneError.ALREADY_FINISHED, -1, -1),
    )
    assert record.reader.read(1, 0) == ()
    assert record.reader.read(0, 1)[0].generation == 0


IMPOSSIBLE = [
    ({"finish": 3}, "finish 3"),
    ({"finish": -1}, "finish -1"),
    ({"error": 3}, "error 3"),
    ({"emitted": 2}, "2 tokens"),
    ({"emitted": -1}, "-1 tokens"),
    # The sampled vocabulary has 50 tokens.
    pytest.param({"token": 50}, "token 50", marks=pytest.mark.clause("CONTRACT-3")),
    pytest.param({"token": -1}, "token -1", marks=pytest.mark.clause("CONTRACT-3")),
]


@pytest.mark.parametrize(("row", "match"), IMPOSSIBLE)
def test_an_impossible_row_says_so_and_the_others_are_read(row: dict[str, int], match: str) -> None:
    record = Record()
    for lane in range(3):
        record.write(0, lane)
    record.write(0, 1, **row)
    first, second, third = record.reader.read(0, 3)
    assert second.error is LaneError.IMPOSSIBLE
    assert re.search(rf"decode\.b4, lane 1: .*{match}", second.fault)
    assert (second.slot, second.generation, second.tokens) == (2, 1, ())
    assert first == third
    assert first.error is LaneError.NONE


RANKED = (
    ("score_ranks", pb.DTYPE_I32, [16]),
    ("score_top_tokens", pb.DTYPE_I32, [16, 20]),
    ("score_top_logprobs", pb.DTYPE_F32, [16, 20]),
)


def scored(
    targets: int, ranked: Sequence[tuple[str, pb.DType, list[int]]] = ()
) -> tuple[CompletionReader, NDArray[np.float32], list[NDArray[np.uint8]]]:
    """A reader of a SCORED_PREFILL program's record, and frame 1's scores and other parts."""
    message = sample_manifest()
    for name, dtype, shape in ranked:
        message.buffers.add(
            name=name, buffer_class=pb.BUFFER_CLASS_COMPLETION, dtype=dtype,
            packing=pb.PACKING_PLAIN, leading=pb.LEADING_COUNT_FIXED, shape=shape,
            nbytes=4 * math.prod(shape),
        )  # fmt: skip
        setattr(message.completions[0], name, name)
    program = next(p for p in message.programs if p.name == "prefill.p16")
    program.operation = contract_pb2.OPERATION_SCORED_PREFILL
    message.buffers.add(
        name="completion.scores", buffer_class=pb.BUFFER_CLASS_COMPLETION, dtype=pb.DTYPE_F32,
        packing=pb.PACKING_PLAIN, leading=pb.LEADING_COUNT_FIXED, shape=[16], nbytes=64,
    )  # fmt: skip
    message.completions[0].scores = "completion.scores"
    manifest = decode_manifest(message)
    plan = plan_memory(manifest, {LeadingCount.REQUEST_SLOTS: 4, LeadingCount.CACHE_PAGES: 1})
    device = NullDevice()
    device.allocate(plan, {n: memoryview(b) for n, b in sample_weights().items()})
    captured = next(p for p in manifest.programs if p.name == "prefill.p16")
    scores = device.view(manifest.buffer_index["completion.scores"], 1).view(np.float32)
    scores[:targets] = -np.arange(1, targets + 1)
    reader = CompletionReader(captured, manifest, plan, device.view, 50)
    assert reader.scored
    parts = [device.view(manifest.buffer_index[name], 1) for name, _, _ in ranked]
    return reader, scores, parts


def test_each_lane_has_the_scores_of_its_tokens() -> None:
    reader, scores, _ = scored(9)
    scores[4] = np.nan
    first, second, third = reader.read(1, 3, (4, 2, 3))
    assert first.scores == (-1, -2, -3, -4)
    assert np.isnan(second.scores[0])
    assert second.scores[1] == -6
    assert third.scores == (-7, -8, -9)
    assert [lane.scores for lane in reader.read(0, 2, (1, 0))] == [(0,), ()]


def test_each_lane_has_the_ranking_of_its_tokens() -> None:
    reader, _, parts = scored(5, RANKED)
    ranks, tokens = (part.view(np.int32) for part in parts[:2])
    ranks[:5] = [4, 1, 0, 9, 50]
    rows, logprobs = tokens.reshape(16, 20), parts[2].view(np.float32).reshape(16, 20)
    rows[0] = -7  # of a lane that wants none: never looked at
    rows[1, :3], logprobs[1, :3] = [8, 3, 5], [-0.5, -1.0, -2.0]
    rows[2], logprobs[2] = -1, 0
    rows[3, :3], logprobs[3, :3] = [9, -1, -1], [-0.25, 0, 0]
    first, second, third = reader.read(1, 3, (1, 3, 1), (), (0, 3, 0))
    assert first.ranking == ((4,), ())
    assert second.ranking.ranks == (1, 0, 9)
    assert second.ranking.alternatives == (
        ((8, 3, 5), (-0.5, -1.0, -2.0)),
        ((), ()),
        ((9,), (-0.25,)),
    )
    assert third.ranking == ((50,), ())


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [(0, -1, "ranks from -1"), (0, 51, "to 51"), (1, 50, "to 50"), (1, -2, "alternatives from -2")],
)
def test_a_ranking_that_cant_be_true_fails_its_lane(part: int, value: int, says: str) -> None:
    reader, _, parts = scored(5, RANKED)
    parts[part].view(np.int32).reshape(16, -1)[2, 0] = value
    first, second = reader.read(1, 2, (2, 3), (), (1, 1))
    assert first.error is LaneError.NONE
    assert (second.error, second.ranking) == (LaneError.IMPOSSIBLE, ((), ()))
    assert says in second.fault


def test_a_record_of_scores_alone_ranks_nothing() -> None:
    reader, _, _ = scored(5)
    first, second = reader.read(1, 2, (2, 3), (), (0, 1))
    assert (first.error, first.ranking) == (LaneError.NONE, ((), ()))
    assert "likeliest tokens are wanted" in second.fault


@pytest.mark.parametrize(
    ("part", "shape", "says"),
    [
        ("score_ranks", [15], "another shape than the scores"),
        ("score_top_tokens", [16, 19], "16 rows of 20"),
        ("score_top_logprobs", [15, 20], "16 rows of 20"),
        *((name, None, "no buffer") for name, _, _ in RANKED),
    ],
)
def test_rankings_come_whole(part: str, shape: list[int] | None, says: str) -> None:
    parts = [
        (name, dtype, whole if name != part or shape is None else shape)
        for name, dtype, whole in RANKED
        if name != part or shape is not None
    ]
    with pytest.raises(ContractError, match=says) as caught:
        scored(5, parts)
    assert caught.value.where == f"completions[0].{part}"


def test_other_records_have_no_scores() -> None:
    record = Record()
    record.write(1, 0)
    assert not record.reader.scored
    assert record.reader.read(1, 1)[0].scores == ()


def with_alternatives() -> tuple[CompletionReader, NDArray[np.int32], NDArray[np.float32]]:
    """A reader of decode.b4's record with the likeliest tokens, and frame 1's of them; its four
    lanes have emitted token 7 each."""
    message = sample_manifest()
    for name, dtype in (("top_tokens", pb.DTYPE_I32), ("top_logprobs", pb.DTYPE_F32)):
        message.buffers.add(
            name=f"completion.{name}", buffer_class=pb.BUFFER_CLASS_COMPLETION, dtype=dtype,
            packing=pb.PACKING_PLAIN, leading=pb.LEADING_COUNT_FIXED, shape=[4, 20], nbytes=320,
        )  # fmt: skip
        setattr(message.completions[0], name, f"completion.{name}")
    manifest = decode_manifest(message)
    plan = plan_memory(manifest, {LeadingCount.REQUEST_SLOTS: 4, LeadingCount.CACHE_PAGES: 1})
    device = NullDevice()
    device.allocate(plan, {n: memoryview(b) for n, b in sample_weights().items()})
    captured = next(p for p in manifest.programs if p.name == "decode.b4")
    index = manifest.buffer_index
    lanes = device.view(index["completion.lanes"], 1).view(np.int32).reshape(4, -1)
    lanes[:, [2, 5, 6]] = [1, -1, -1]
    device.view(index["completion.tokens"], 1).view(np.int32)[:] = 7
    return (
        CompletionReader(captured, manifest, plan, device.view, 50),
        device.view(index["completion.top_tokens"], 1).view(np.int32).reshape(4, 20),
        device.view(index["completion.top_logprobs"], 1).view(np.float32).reshape(4, 20),
    )


def test_alternatives_are_read_for_those_who_want_some() -> None:
    reader, tokens, logprobs = with_alternatives()
    tokens[:] = 99  # of lanes that nobody asked for: never looked at
    tokens[1, :3], logprobs[1, :3] = [5, 7, 2], [-0.5, -1.0, -2.0]
    tokens[3, :4], logprobs[3, :4] = [9, 4, -1, -1], [-0.25, -1.5, 0.0, 0.0]
    lanes = reader.read(1, 4, top_logprobs=(0, 3, 0, 4))
    assert [lane.alternatives for lane in lanes] == [
        (),
        (((5, 7, 2), (-0.5, -1.0, -2.0)),),
        (),
        # There are no more.
        (((9, 4), (-0.25, -1.5)),),
    ]
    assert all(lane.alternatives == () for lane in reader.read(1, 4))
    assert all(lane.alternatives == () for lane in reader.read(0, 4, top_logprobs=(3,) * 4))


def test_an_alternative_outside_the_vocabulary_fails_its_lane() -> None:
    reader, tokens, _ = with_alternatives()
    tokens[:, :2] = 5
    tokens[2, 1] = 50
    lanes = reader.read(1, 4, top_logprobs=(2,) * 4)
    assert [lane.error is LaneError.IMPOSSIBLE for lane in lanes] == [False, False, True, False]
    assert re.search(r"decode\.b4, lane 2: .*alternative 50", lanes[2].fault)
    assert (lanes[2].tokens, lanes[2].alternatives) == ((), ())


def test_a_record_without_alternatives_has_none_to_give() -> None:
    record = Record()
    record.write(0, 0)
    assert "the record has none" in record.reader.read(0, 1, top_logprobs=(1,))[0].fault


@pytest.mark.parametrize(
    ("part", "shape", "message"),
    [
        ("top_tokens", [4, 19], "4 rows of 20"),
        ("top_logprobs", [3, 20], "4 rows of 20"),
        ("top_tokens", None, "no buffer"),
    ],
)
def test_alternatives_come_in_pairs_of_rows(
    part: str, shape: list[int] | None, message: str
) -> None:
    manifest = sample_manifest()
    for name, dtype in (("top_tokens", pb.DTYPE_I32), ("top_logprobs", pb.DTYPE_F32)):
        if name == part and shape is None:
            continue
        own = shape if name == part and shape is not None else [4, 20]
        manifest.buffers.add(
            name=name, buffer_class=pb.BUFFER_CLASS_COMPLETION, dtype=dtype,
            packing=pb.PACKING_PLAIN, leading=pb.LEADING_COUNT_FIXED, shape=own,
            nbytes=4 * own[0] * own[1],
        )  # fmt: skip
        setattr(manifest.completions[0], name, name)
    with pytest.raises(ContractError, match=message) as caught:
        decode_manifest(manifest)
    assert caught.value.where == f"completions[0].{part}"
