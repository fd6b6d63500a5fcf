"""The null device that answers from a script: everything of the host's half, nothing of a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.errors import ContractError
from helios.runtime.devices.scripted import ScriptedDevice
from helios.runtime.geometry import Operation
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import SamplingParameters
from helios.scheduler import Event, Finish, Request, Scheduler, TokensEmitted
from tests.synthetic.histories import HISTORIES, VOCABULARY
from tests.synthetic.model import SyntheticModel

PAGES = next(h for h in HISTORIES if h.name == "partial pages")


def script(slot: int, position: int) -> tuple[int, float]:
    """A token for each position; its logprob says the position."""
    return (7 * position + 3) % VOCABULARY, -float(position)


def load(duration: object = None) -> tuple[ModelRuntime, ScriptedDevice]:
    model = SyntheticModel(PAGES)
    contract, manifest = model.contract, decode_manifest(model.manifest)
    device = ScriptedDevice(contract, manifest, script, duration)  # type: ignore[arg-type]
    runtime = ModelRuntime.from_parts(contract, model.manifest, model.weights(), device=device)
    return runtime, device


def serve(
    runtime: ModelRuntime, *waves: list[Request]
) -> tuple[dict[int, list[Event]], list[Operation]]:
    """Each request's events, and what the rounds did; a wave comes when the one before has gone."""
    scheduler = Scheduler(runtime.geometry)
    events: dict[int, list[Event]] = {}
    operations: list[Operation] = []
    sequences: list[int] = []
    for wave in waves:
        for one in wave:
            scheduler.submit(one)
        while not scheduler.idle or sequences:
            while scheduler.can_plan() and (planned := scheduler.plan()) is not None:
                sequences.append(runtime.submit(planned.round))
                scheduler.begin(planned, sequences[-1])
                operations.append(planned.program.operation)
            sequence = sequences.pop(0)
            assert runtime.wait(sequence, 1000)
            for event in scheduler.complete(runtime.read(sequence)):
                events.setdefault(event.request_id, []).append(event)
            scheduler.settle()
            scheduler.check_books()
    return events, operations


def request(number: int, prompt: int, limit: int, eos_ids: tuple[int, ...] = ()) -> Request:
    tokens = tuple((number + 5 * i) % VOCABULARY for i in range(prompt))
    return Request(number, tokens, limit, SamplingParameters(), eos_ids)


def emitted(events: list[Event]) -> tuple[list[int], list[float], Finish | None]:
    tokens: list[int] = []
    logprobs: list[float] = []
    finish = None
    for event in events:
        assert isinstance(event, TokensEmitted), event
        tokens += event.tokens
        logprobs += event.logprobs
        finish = event.finish
    return tokens, logprobs, finish


def test_requests_get_what_the_script_says() -> None:
    runtime, _ = load()
    requests = [
        request(i, prompt, limit)
        for i, (prompt, limit) in enumerate([(3, 9), (17, 4), (8, 1), (11, 20), (2, 2), (21, 12)])
    ]
    events, operations = serve(runtime, requests)
    for one in requests:
        positions = range(len(one.prompt), len(one.prompt) + one.output_limit)
        expected = [script(0, position) for position in positions]
        tokens, logprobs, finish = emitted(events[one.request_id])
        assert list(zip(tokens, logprobs, strict=True)) == expected
        assert finish is Finish.LIMIT
    assert {Operation.INITIALIZE, Operation.PREFILL, Operation.DECODE} <= set(operations)
    runtime.close()


def test_a_request_ends_at_its_end_of_sequence_and_its_lane_is_empty_once() -> None:
    runtime, _ = load()
    eos, _ = script(0, 9)
    events, _ = serve(runtime, [request(1, 4, 20, eos_ids=(VOCABULARY - 1, eos))])
    tokens, _, finish = emitted(events[1])
    assert tokens[-1] == eos
    assert len(tokens) == 6
    assert finish is Finish.EOS
    runtime.close()


def test_snapshots_and_what_begins_from_them_are_played_too() -> None:
    runtime, _ = load()
    events, operations = serve(runtime, [request(1, 15, 3)], [request(1, 15, 3)])
    assert {Operation.SNAPSHOT, Operation.RESUME} <= set(operations)
    tokens, _, _ = emitted(events[1])
    assert tokens == [script(0, position)[0] for position in (15, 16, 17)] * 2
    runtime.close()


def test_time_is_what_was_said() -> None:
    runtime, device = load(lambda name, tokens: 1000 + 10 * tokens)
    serve(runtime, [request(1, 6, 4)])
    spans = [runtime.timing(sequence) for sequence in range(1, 6)]
    # INITIALIZE, PREFILL, SNAPSHOT, two of three DECODE.
    assert [end - start for start, end in spans] == [1010, 1060, 1000, 1010, 1010]
    assert [start for start, _ in spans][1:] == [end for _, end in spans][:-1]
    assert device.launches() > 0
    runtime.close()


def test_a_program_without_the_inputs_of_its_record_is_refused_by_name() -> None:
    model = SyntheticModel(PAGES)
    manifest = decode_manifest(model.manifest)
    device = ScriptedDevice(model.contract, manifest)
    unknown = replace(manifest.programs[0], name="initialize.unknown")
    with pytest.raises(ContractError, match=r"initialize\.unknown: binds no LIVE_ROW_COUNT, SLOT"):
        device.load([unknown])
