"""ModelRuntime: frames, sequences, real programs on every host device, loading from a core."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helios.contract import decode
from helios.core import format as core_format
from helios.core import open_core
from helios.errors import ContractError, CoreError, ExecutionError
from helios.runtime.device import Device, DeviceOptions
from helios.runtime.devices.null import NullDevice
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.runtime.rounds import Completion, LaneAdmission, LaneWork, Round, SamplingParameters
from helios.schema import core_pb2
from tests.contract.sample import CONTEXT_TOKENS, PAGE_TOKENS, sample_contract
from tests.core.sample_core import CONTENT, NAMESPACE, compress, write_core
from tests.runtime.sample_manifest import sample_manifest, sample_weights

SECOND_MS = 60_000


def load(target: str = "cpu", device: Device | None = None, **capacities: int) -> ModelRuntime:
    return ModelRuntime.from_parts(
        decode(sample_contract()),
        sample_manifest(),
        sample_weights(),
        target=target,
        options=DeviceOptions(threads=1),
        capacities=Capacities(**capacities),
        device=device,
    )


@pytest.fixture(params=["cpu", "reference"])
def runtime(request: pytest.FixtureRequest) -> Iterator[ModelRuntime]:
    loaded = load(request.param)
    yield loaded
    loaded.close()


def index(runtime: ModelRuntime, name: str) -> int:
    return next(p.index for p in runtime.geometry.programs if p.name == name)


def run(runtime: ModelRuntime, program: str, *lanes: LaneWork) -> Completion:
    sequence = runtime.submit(Round(index(runtime, program), lanes))
    assert runtime.wait(sequence, SECOND_MS)
    return runtime.read(sequence)


def admitted(
    slot: int, generation: int = 1, limit: int = 10, eos: tuple[int, ...] = ()
) -> LaneWork:
    admission = LaneAdmission(SamplingParameters(temperature=0.0), limit, 0, eos)
    return LaneWork(slot, generation, 0, (), False, (), admission)


def prompt(slot: int, tokens: tuple[int, ...], generation: int = 1) -> LaneWork:
    return LaneWork(slot, generation, 0, tokens, True, pages(slot, len(tokens)))


def step(slot: int, consumed: int, generation: int = 1) -> LaneWork:
    return LaneWork(slot, generation, consumed, (), True, pages(slot, consumed + 1))


def pages(slot: int, tokens: int) -> tuple[int, ...]:
    return tuple(slot * 6 + i for i in range(-(-tokens // PAGE_TOKENS)))


def next_token(token: int) -> int:
    """The sample model's greedy answer: the row of its table that looks most like the token's."""
    packed = np.frombuffer(sample_weights()["weights"], np.float32).reshape(4, 8, 16)
    table = packed.transpose(0, 2, 1).reshape(64, 8)[:50]
    return int(np.argmax(table @ table[token]))


def test_prompts_and_steps_give_the_models_tokens(runtime: ModelRuntime) -> None:
    run(runtime, "initialize.b4", admitted(0), admitted(3))
    first = run(runtime, "prefill.p8", prompt(0, (4, 5, 6)), prompt(3, (9,)))
    assert [lane.tokens for lane in first.lanes] == [(next_token(6),), (next_token(9),)]
    assert [(lane.slot, lane.consumed) for lane in first.lanes] == [(0, 3), (3, 1)]
    second = run(runtime, "decode.b2", step(3, 1), step(0, 3))
    assert [lane.tokens for lane in second.lanes] == [
        (next_token(next_token(9)),),
        (next_token(next_token(6)),),
    ]
    assert [(lane.slot, lane.consumed) for lane in second.lanes] == [(3, 2), (0, 4)]
    assert second.completed_ns > 0
    assert runtime.launches() == 1 + 6 + 6


def test_eos_limit_and_stale_generations_are_reported(runtime: ModelRuntime) -> None:
    run(runtime, "initialize.b4", admitted(0, eos=(next_token(6),)), admitted(1, limit=1))
    ended = run(runtime, "prefill.p8", prompt(0, (6,)), prompt(1, (7,)))
    assert [lane.finish.name for lane in ended.lanes] == ["EOS", "LIMIT"]
    after = run(runtime, "decode.b2", step(0, 1), step(1, 1, generation=2))
    assert [lane.error.name for lane in after.lanes] == ["ALREADY_FINISHED", "STALE_GENERATION"]
    assert [lane.tokens for lane in after.lanes] == [(), ()]


def test_two_rounds_are_in_flight_and_the_third_waits(runtime: ModelRuntime) -> None:
    assert runtime.can_submit()
    first = runtime.submit(Round(0, (admitted(0),)))
    second = runtime.submit(Round(1, (prompt(0, (4,)),)))
    assert (first, second) == (1, 2)
    assert not runtime.can_submit()
    with pytest.raises(ExecutionError, match="frame 1 is in use until round 1 is read"):
        runtime.submit(Round(3, (step(0, 1),)))
    assert runtime.wait(second, SECOND_MS)
    assert runtime.completed(first)
    # Rounds may be read in any order once they have run.
    assert runtime.read(second).lanes[0].tokens == (next_token(4),)
    assert not runtime.can_submit()
    assert runtime.read(first).lanes == ()
    assert runtime.can_submit()
    with pytest.raises(ExecutionError, match="round 1: is not in flight"):
        runtime.read(first)
    start, end = runtime.timing(second)
    assert 0 < start <= end


def test_a_refused_round_takes_no_sequence_and_no_frame(runtime: ModelRuntime) -> None:
    with pytest.raises(ExecutionError, match="not distinct"):
        runtime.submit(Round(0, (admitted(0), admitted(0))))
    with pytest.raises(ExecutionError, match="no program 17"):
        runtime.submit(Round(17, (admitted(0),)))
    assert runtime.submit(Round(0, (admitted(0),))) == 1


def test_buffers_can_be_read_back(runtime: ModelRuntime) -> None:
    run(runtime, "initialize.b4", admitted(1))
    run(runtime, "prefill.p16", prompt(1, (1, 2, 3, 4, 5)))
    assert runtime.read_buffer("page_table")[1, :2].tolist() == [6, 7]
    assert runtime.read_buffer("in.tokens")[:5].tolist() == [1, 2, 3, 4, 5]
    logits = runtime.read_buffer("logits")
    assert (logits.shape, logits.dtype) == ((4, 64), np.float32)
    assert runtime.read_buffer("cache.k.0").dtype == np.float32
    assert not runtime.read_buffer("cache.k.0").any()
    with pytest.raises(ExecutionError, match="no buffer"):
        runtime.read_buffer("nothing")
    with pytest.raises(ExecutionError, match="table"):
        runtime.read_buffer("table")


def test_devices_leave_the_same_bits() -> None:
    answers = []
    for target in ("cpu", "reference"):
        runtime = load(target)
        run(runtime, "initialize.b4", admitted(2))
        lanes = run(runtime, "prefill.p8", prompt(2, (11, 12, 13))).lanes
        answers.append((lanes[0].tokens, runtime.read_buffer("request_state").tolist()))
        runtime.close()
    assert answers[0] == answers[1]


def test_geometry_and_memory_follow_the_capacities() -> None:
    runtime = load(device=NullDevice(), request_slots=2, cache_nbytes=64 * 9)
    geometry = runtime.geometry
    assert (geometry.request_slots, geometry.cache_pages, geometry.frames) == (2, 9, 2)
    assert (geometry.page_tokens, geometry.pages_per_request) == (PAGE_TOKENS, 6)
    assert geometry.max_context_tokens == CONTEXT_TOKENS
    assert (geometry.vocabulary_tokens, geometry.input_tokens) == (50, 52)
    assert [p.name for p in geometry.programs][-1] == "decode.b2"
    assert [p.index for p in geometry.programs] == list(range(5))
    assert runtime.memory["cache"] == 64 * 9
    assert runtime.memory["state"] == 2 * (128 + 24)
    with pytest.raises(ExecutionError, match="not distinct and in"):
        runtime.submit(Round(0, (admitted(2),)))


class _Refusing(NullDevice):
    def submit(self, program: int, frame: int, sequence: int) -> None:
        raise RuntimeError("out of order")


def test_after_a_device_refused_a_round_nothing_runs() -> None:
    runtime = load(device=_Refusing())
    with pytest.raises(ExecutionError, match="out of order"):
        runtime.submit(Round(0, (admitted(0),)))
    with pytest.raises(ExecutionError, match="round 1: the device refused a round"):
        runtime.submit(Round(0, (admitted(0),)))


@pytest.mark.parametrize("target", ["cuda:sm_90", "tpu", ""])
def test_a_target_without_device_or_manifest_is_refused(target: str) -> None:
    with pytest.raises(ContractError, match="target"):
        load(target)


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ExecutionError, match=r"instruction set: .*'mmx'"):
        ModelRuntime.from_parts(
            decode(sample_contract()),
            sample_manifest(),
            sample_weights(),
            options=DeviceOptions(instruction_set="mmx"),
        )


def test_a_launch_that_doesn_t_fit_its_operands_is_refused_at_load() -> None:
    message = sample_manifest()
    message.programs[1].launches[1].integers[2] = 4096  # embed's width
    with pytest.raises(ContractError, match=r"program prefill\.p8: .*embed"):
        ModelRuntime.from_parts(decode(sample_contract()), message, sample_weights())


def test_memory_that_can_t_be_had_is_an_execution_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("helios.runtime.devices.cpu.mmap.mmap", refuse)
    with pytest.raises(ExecutionError, match=r"buffer workspace: no memory for its 2048 bytes"):
        load()


def test_memory_that_the_machine_lacks_is_refused_before_it_is_mapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("helios.runtime.capacities.available_nbytes", lambda: 1 << 20)
    device = NullDevice()
    with pytest.raises(ContractError, match=r"memory: .*1\.0 MiB are available"):
        load(device=device, cache_nbytes=1 << 30)
    with pytest.raises(IndexError):
        device.view(0, 0)


def test_closing_twice_is_fine(runtime: ModelRuntime) -> None:
    runtime.submit(Round(0, (admitted(0),)))
    runtime.close()
    runtime.close()


# ---------------------------------------------------------------- from a core


def core_with_programs(folder: Path, weights: bytes | None = None) -> Path:
    """The sample core with the sample manifest and weights in place of its filler."""
    content = sample_manifest().SerializeToString()
    raw = sample_weights()["weights"] if weights is None else weights

    def change(body: core_pb2.CoreBody) -> None:
        manifest = body.executable_resources[list(CONTENT).index("manifest")]
        manifest.decoded_nbytes = len(content)
        resource = body.weight_resources[0]
        resource.nbytes = len(raw)
        del resource.chunk_sha256[:]
        resource.chunk_sha256.extend(core_format.chunk_digests(raw))

    write_core(folder, change, stored={"manifest": compress(content)})
    name = core_format.weight_content_name([hashlib.sha256(raw).digest()])
    (folder / core_format.RESOURCE_FOLDER / name).write_bytes(raw)
    return folder


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_core_loads_and_runs(tmp_path: Path, target: str, verify: bool) -> None:
    core = open_core(core_with_programs(tmp_path / "core"), accept=NAMESPACE)
    runtime = ModelRuntime.load(
        core, target=target, options=DeviceOptions(threads=1), verify_weights=verify
    )
    run(runtime, "initialize.b4", admitted(0))
    assert run(runtime, "prefill.p8", prompt(0, (4,))).lanes[0].tokens == (next_token(4),)
    runtime.close()
    runtime.close()


def test_damaged_weights_keep_a_core_from_loading(tmp_path: Path) -> None:
    folder = core_with_programs(tmp_path / "core")
    name = core_format.weight_content_name(core_format.chunk_digests(sample_weights()["weights"]))
    path = folder / core_format.RESOURCE_FOLDER / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CoreError, match=r"resource 'weights'.*chunk 0 is not what was signed"):
        ModelRuntime.load(open_core(folder, accept=NAMESPACE))


def test_weights_too_short_for_the_manifest_are_refused(tmp_path: Path) -> None:
    folder = core_with_programs(tmp_path / "core", sample_weights()["weights"][:-64])
    with pytest.raises(ContractError, match="past the 1984 bytes of 'weights'"):
        ModelRuntime.load(open_core(folder, accept=NAMESPACE))


def test_a_manifest_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="'manifest': is no ExecutionManifest"):
        ModelRuntime.load(open_core(write_core(tmp_path / "core"), accept=NAMESPACE))


def test_a_target_that_the_core_lacks_is_named(tmp_path: Path) -> None:
    core = open_core(core_with_programs(tmp_path / "core"), accept=NAMESPACE)
    with pytest.raises(ContractError, match=r"no target 'cuda:sm_90'\. It has cpu"):
        ModelRuntime.load(core, target="cuda:sm_90")
