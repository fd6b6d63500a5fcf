"""Reading completion records, and telling rows that can't be true."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from helios.runtime.capacities import plan_memory
from helios.runtime.completions import CompletionReader
from helios.runtime.devices.null import NullDevice
from helios.runtime.manifest import LeadingCount
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.rounds import Alternatives, DeviceFinish, LaneCompletion, LaneError
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


def scored(targets: int) -> tuple[CompletionReader, NDArray[np.float32]]:
    """A reader of a SCORED_PREFILL program's record, and frame 1's scores."""
    message = sample_manifest()
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
    return reader, scores


def test_each_lane_has_the_scores_of_its_tokens() -> None:
    reader, scores = scored(9)
    scores[4] = np.nan
    first, second, third = reader.read(1, 3, (4, 2, 3))
    assert first.scores == (-1, -2, -3, -4)
    assert np.isnan(second.scores[0])
    assert second.scores[1] == -6
    assert third.scores == (-7, -8, -9)
    assert [lane.scores for lane in reader.read(0, 2, (1, 0))] == [(0,), ()]


def test_other_records_have_no_scores() -> None:
    record = Record()
    record.write(1, 0)
    assert not record.reader.scored
    assert record.reader.read(1, 1)[0].scores == ()


def with_alternatives() -> tuple[CompletionReader, NDArray[np.int32], NDArray[np.float32]]:
    """A reader of decode.b4's record with alternatives, and frame 1's tokens and logprobs of them.
    Each lane emits token 7."""
    message = sample_manifest()
    used = next(p for p in message.programs if p.name == "decode.b4").completion
    record = next(r for r in message.completions if r.name == used)
    for name, dtype in (("top_tokens", pb.DTYPE_I32), ("top_logprobs", pb.DTYPE_F32)):
        message.buffers.add(
            name=f"completion.{name}", buffer_class=pb.BUFFER_CLASS_COMPLETION, dtype=dtype,
            packing=pb.PACKING_PLAIN, leading=pb.LEADING_COUNT_FIXED, shape=[4, 20], nbytes=320,
        )  # fmt: skip
        setattr(record, name, f"completion.{name}")
    manifest = decode_manifest(message)
    plan = plan_memory(manifest, {LeadingCount.REQUEST_SLOTS: 4, LeadingCount.CACHE_PAGES: 1})
    device = NullDevice()
    device.allocate(plan, {n: memoryview(b) for n, b in sample_weights().items()})
    program = next(p for p in manifest.programs if p.name == "decode.b4")

    def view(name: str, dtype: type) -> NDArray[np.generic]:
        raw = device.view(manifest.buffer_index[f"completion.{name}"], 1)
        return raw.view(dtype).reshape(4, -1)

    lanes = view("lanes", np.int32)
    lanes[:, 2] = 1
    view("tokens", np.int32)[:] = 7
    tokens, logprobs = view("top_tokens", np.int32), view("top_logprobs", np.float32)
    tokens[:], logprobs[:] = np.arange(20), -np.arange(20)
    return CompletionReader(program, manifest, plan, device.view, 50), tokens, logprobs


def test_each_lane_has_as_many_alternatives_as_it_wants() -> None:
    reader, tokens, _ = with_alternatives()
    tokens[1, 2:] = -1
    first, second, third = reader.read(1, 3, (), (3, 4, 0))
    assert first.alternatives == (Alternatives((0, 1, 2), (0, -1, -2)),)
    assert second.alternatives == (Alternatives((0, 1), (0, -1)),)
    assert third.alternatives == ()


def test_an_impossible_alternative_fails_its_lane() -> None:
    reader, tokens, _ = with_alternatives()
    tokens[0, 1] = 50
    first, second = reader.read(1, 2, (), (2, 2))
    assert first.error is LaneError.IMPOSSIBLE
    assert re.search(r"decode\.b4, lane 0: .*alternative 50", first.fault)
    assert (second.error, len(second.alternatives)) == (LaneError.NONE, 1)


def test_alternatives_that_no_record_has_fail_who_wants_them() -> None:
    record = Record()
    record.write(1, 0)
    record.write(1, 1)
    first, second = record.reader.read(1, 2, (), (0, 1))
    assert first.error is LaneError.NONE
    assert "the record has none" in second.fault
