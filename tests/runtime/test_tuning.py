"""Startup tuning: producers run first and once, only those needed, and change no answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from helios.contract import PreparedContract, decode
from helios.errors import ContractError, ExecutionError
from helios.kernels.catalogue import BLOCKINGS, BY_NAME
from helios.runtime.capacities import Capacities
from helios.runtime.device import Device, DeviceOptions
from helios.runtime.devices.null import NullDevice
from helios.runtime.inspection import launch_rows, program_rows
from helios.runtime.manifest import Program
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.tuning import StalledError, required_producers
from helios.schema import contract_pb2 as c
from helios.schema import execution_pb2 as pb
from tests.contract.sample import VOCABULARY, sample_contract
from tests.runtime.sample_manifest import LANES, STRIDE, WIDTH, sample_manifest, sample_weights
from tests.runtime.test_model_runtime import admitted, next_token, prompt, run, step

DECODE = (3, 4, 5)
LINEAR = 3  # the head's launch in a DECODE program


def index_of(manifest: pb.ExecutionManifest, name: str) -> int:
    return [buffer.name for buffer in manifest.buffers].index(name)


def use(manifest: pb.ExecutionManifest, kernel: str) -> int:
    """The index of a kernel that the manifest may not use yet."""
    names = [known.name for known in manifest.kernels]
    if kernel not in names:
        spec = BY_NAME[kernel]
        manifest.kernels.add(
            name=kernel, operands=[o.name for o in spec.operands], integers=spec.integers
        )
        names.append(kernel)
    return names.index(kernel)


def tuned_sample() -> tuple[PreparedContract, pb.ExecutionManifest]:
    """The sample whose DECODE programs read the blocking of their head from a producer each."""
    manifest, contract = sample_manifest(), sample_contract()
    manifest.buffers.add(
        name="tune.x", buffer_class=pb.BUFFER_CLASS_WORKSPACE, dtype=pb.DTYPE_F32,
        packing=pb.PACKING_PLAIN, leading=pb.LEADING_COUNT_FIXED, shape=[LANES, WIDTH],
        nbytes=4 * LANES * WIDTH, offset=manifest.workspace_nbytes,
    )  # fmt: skip
    manifest.workspace_nbytes += 4 * LANES * WIDTH
    for number in DECODE:
        program = manifest.programs[number]
        lanes = program.batch_capacity
        choice, producer = f"choice.b{lanes}", f"tune.b{lanes}"
        manifest.buffers.add(
            name=choice, buffer_class=pb.BUFFER_CLASS_TUNED, dtype=pb.DTYPE_I32,
            packing=pb.PACKING_PLAIN, leading=pb.LEADING_COUNT_FIXED, shape=[1], nbytes=4,
        )  # fmt: skip
        launch = program.launches[LINEAR]
        launch.kernel = use(manifest, "linear_tuned")
        launch.operands.add(buffer=index_of(manifest, choice) + 1, access=1)
        tuning = manifest.tuning.add(name=producer, operation=c.OPERATION_TUNE, batch_capacity=1)
        measured = tuning.launches.add(
            kernel=use(manifest, "tune_linear"),
            integers=[lanes, WIDTH, VOCABULARY, pb.PACKING_TILE16_F32, 0],
        )
        for name, access in (("tune.x", 2), ("table", 1), ("logits", 2), (choice, 2)):
            measured.operands.add(buffer=index_of(manifest, name) + 1, access=access)
        binding = c.TunedBinding(buffer=choice, producer=producer)
        program.tuned_bindings.append(binding)
        contract.model.graphs[number].tuned_bindings.append(binding)
    return decode(contract), manifest


def load(
    target: str = "cpu", slots: int | None = None, device: Device | None = None
) -> ModelRuntime:
    contract, manifest = tuned_sample()
    return ModelRuntime.from_parts(
        contract, manifest, sample_weights(), target=target,
        options=DeviceOptions(threads=2), capacities=Capacities(request_slots=slots),
        device=device,
    )  # fmt: skip


@pytest.fixture(params=["cpu", "reference"])
def runtime(request: pytest.FixtureRequest) -> Iterator[ModelRuntime]:
    loaded = load(request.param)
    yield loaded
    loaded.close()


@pytest.mark.clause("BOOT-10")
def test_tuned_programs_give_the_same_answers(runtime: ModelRuntime) -> None:
    run(runtime, "initialize.b4", admitted(0), admitted(3))
    first = run(runtime, "prefill.p8", prompt(0, (4, 5, 6)), prompt(3, (9,)))
    assert [lane.tokens for lane in first.lanes] == [(next_token(6),), (next_token(9),)]
    second = run(runtime, "decode.b2", step(3, 1), step(0, 3))
    assert [lane.tokens for lane in second.lanes] == [
        (next_token(next_token(9)),),
        (next_token(next_token(6)),),
    ]


@pytest.mark.clause("BOOT-10")
def test_results_are_kept_for_the_process(runtime: ModelRuntime) -> None:
    names = [f"choice.b{lanes}" for lanes in (1, 2, 4)]
    before = [int(runtime.read_buffer(name)[0]) for name in names]
    assert all(0 <= choice < BLOCKINGS for choice in before)
    run(runtime, "initialize.b4", admitted(0))
    run(runtime, "prefill.p8", prompt(0, (4,)))
    run(runtime, "decode.b1", step(0, 1))
    assert [int(runtime.read_buffer(name)[0]) for name in names] == before
    assert runtime.tuning_ns > 0


class _Recording(NullDevice):
    """Remembers what ran, and what a producer left."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[str, int]] = []

    def run(self, program: Program, frame: int) -> None:
        self.ran.append((program.name, frame))


@pytest.mark.clause("BOOT-10")
@pytest.mark.parametrize(
    ("slots", "expected"),
    [(None, ["tune.b1", "tune.b2", "tune.b4"]), (2, ["tune.b1", "tune.b2"]), (1, ["tune.b1"])],
)
def test_the_needed_producers_run_before_anything_can_be_submitted(
    slots: int | None, expected: list[str]
) -> None:
    device = _Recording()
    runtime = load(slots=slots, device=device)
    assert [name for name, _ in device.ran] == expected
    count = len(expected)
    assert [frame for _, frame in device.ran] == [s % 2 for s in range(1, count + 1)]
    # Rounds go on where tuning ended: every sequence has its own frame.
    completion = run(runtime, "initialize.b4", admitted(0))
    assert completion.sequence == count + 1
    assert device.ran[-1] == ("initialize.b4", (count + 1) % 2)


class _Failing(NullDevice):
    def wait(self, sequence: int, timeout_ms: int) -> bool:
        if sequence == 2:
            raise ExecutionError("it broke", where="submission 2")
        return super().wait(sequence, timeout_ms)


@pytest.mark.clause("BOOT-10")
def test_a_producer_that_fails_fails_start_up() -> None:
    with pytest.raises(ExecutionError, match=r"tuning program tune\.b2: .*it broke"):
        load(device=_Failing())


class _Stalled(NullDevice):
    """Never completes the second producer; closing it would take as long."""

    waited_ms = 0
    closed = False

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        if sequence != 2:
            return super().wait(sequence, timeout_ms)
        self.waited_ms += timeout_ms
        return False

    def close(self) -> None:
        self.closed = True


def test_a_producer_that_never_completes_is_given_up_by_name() -> None:
    device = _Stalled()
    with pytest.raises(
        StalledError, match=r"tuning program tune\.b2: didn't complete within 600 s"
    ):
        load(device=device)
    assert device.waited_ms == 600_000
    assert not device.closed


def test_a_device_that_failed_is_closed() -> None:
    class Failing(_Failing):
        closed = False

        def close(self) -> None:
            self.closed = True

    device = Failing()
    with pytest.raises(ExecutionError, match="it broke"):
        load(device=device)
    assert device.closed


def test_a_launch_of_a_producer_that_doesn_t_fit_is_refused_at_load() -> None:
    contract, manifest = tuned_sample()
    manifest.tuning[1].launches[0].integers[0] = LANES * STRIDE
    with pytest.raises(ContractError, match=r"program tune\.b2: .*tune_linear"):
        ModelRuntime.from_parts(contract, manifest, sample_weights())


@pytest.mark.clause("BOOT-10")
def test_what_a_producer_builds_on_is_needed_too() -> None:
    _, message = tuned_sample()
    message.tuning[2].tuned_bindings.add(buffer="choice.b1", producer="tune.b1")
    manifest = decode_manifest(message)
    by_name = {program.name: program for program in manifest.programs}
    needed = required_producers(manifest, [by_name["decode.b4"]])
    assert [program.name for program in needed] == ["tune.b1", "tune.b4"]
    assert required_producers(manifest, [by_name["prefill.p8"]]) == ()


@pytest.mark.clause("BOOT-10")
def test_what_a_measurement_picked_is_taken_for_nothing_else() -> None:
    contract, manifest = tuned_sample()
    operand = manifest.programs[DECODE[0]].launches[4].operands[1]
    operand.buffer, operand.access = index_of(manifest, "choice.b1") + 1, 1
    with pytest.raises(ContractError, match=r"as 'lane': .*program decode\.b1") as refused:
        ModelRuntime.from_parts(contract, manifest, sample_weights())
    assert refused.value.where == "programs[3].launches[4].operands[1].buffer"


def test_without_tuning_nothing_is_spent() -> None:
    runtime = ModelRuntime.from_parts(
        decode(sample_contract()), sample_manifest(), sample_weights(), device=NullDevice()
    )
    assert runtime.tuning_ns == 0


def test_inspection_shows_the_tuning_catalog() -> None:
    manifest = decode_manifest(tuned_sample()[1])
    rows = {row.name: row for row in program_rows(manifest, 2)}
    assert (rows["tune.b2"].operation, rows["tune.b2"].selected) == ("TUNE", True)
    assert not rows["tune.b4"].selected
    assert launch_rows(manifest, "tune.b2")[0].operands == (
        "x=tune.x w", "weight=table r", "out=logits w", "choice=choice.b2 w",
    )  # fmt: skip


def test_a_device_sees_choices_as_they_were_made(runtime: ModelRuntime) -> None:
    """The buffer is of the device, one for both frames."""
    choice = runtime.read_buffer("choice.b4")
    assert choice.dtype == np.int32
    run(runtime, "initialize.b4", admitted(1))
    assert runtime.read_buffer("choice.b4").tolist() == choice.tolist()
