"""The rounds that reach every program: they do, whatever was selected, and say what stops them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helios.contract import decode
from helios.errors import ExecutionError
from helios.runtime.device import DeviceOptions
from helios.runtime.devices.cpu import CpuDevice
from helios.runtime.devices.null import NullDevice
from helios.runtime.every_program import run_every_program
from helios.runtime.geometry import Operation
from helios.runtime.manifest import Launch, Program
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.reference.differ import LockstepDevice
from helios.runtime.reference.kernels import KERNELS
from helios.runtime.rounds import LaneWork, Round
from tests.contract.sample import sample_contract
from tests.model_parts import ModelParts, capture_tiny
from tests.replaying import GREEDY
from tests.runtime.sample_manifest import sample_manifest, sample_weights


class Listing(NullDevice):
    """Runs nothing and lists what it was asked to run."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def run(self, program: Program, frame: int) -> None:
        self.ran.append(program.name)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ModelParts:
    return capture_tiny(tmp_path_factory.mktemp("checkpoints"), "llama")


@pytest.mark.parametrize(("slots", "snapshots"), [(1, 0), (1, 1), (2, 1), (32, 4)])
def test_every_selected_program_runs(parts: ModelParts, slots: int, snapshots: int) -> None:
    device = Listing()
    runtime = parts.load(device=device, request_slots=slots, cache_tokens=512, snapshots=snapshots)
    run_every_program(runtime)
    assert set(device.ran) == {program.name for program in runtime.geometry.programs}


def test_a_core_without_snapshots_is_run_too() -> None:
    device = Listing()
    runtime = ModelRuntime.from_parts(
        decode(sample_contract()), sample_manifest(), sample_weights(), device=device
    )
    run_every_program(runtime)
    assert set(device.ran) == {program.name for program in runtime.geometry.programs}


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("kernel", ["save_page", "load_page", "rope_and_cache"])
def test_a_kernel_that_does_nothing_is_found_wherever_it_is_launched(
    parts: ModelParts, monkeypatch: pytest.MonkeyPatch, kernel: str, slots: int
) -> None:
    """In each program that launches it, whatever earlier ones have left."""
    capable = {
        program.name
        for program in decode_manifest(parts.manifest).programs
        if any(launch.kernel.name == kernel for launch in program.launches)
    }
    found: set[str] = set()
    compare = LockstepDevice._compare

    def every_difference(
        self: LockstepDevice, program: str, index: int, launch: Launch, frame: int
    ) -> None:
        compare(self, program, index, launch, frame)
        if self.first_difference is not None:
            assert self.first_difference.kernel == kernel
            found.add(program)
            self.first_difference = None

    monkeypatch.setattr(LockstepDevice, "_compare", every_difference)
    monkeypatch.setitem(KERNELS, kernel, lambda *arrays, **attributes: None)
    device = LockstepDevice(CpuDevice(DeviceOptions(threads=1)))
    runtime = parts.load(device=device, request_slots=slots, cache_tokens=512, snapshots=4)
    run_every_program(runtime)
    runtime.close()
    assert found == capable & {program.name for program in runtime.geometry.programs}


@pytest.fixture
def runtime(parts: ModelParts) -> Iterator[ModelRuntime]:
    runtime = parts.load("cpu", request_slots=4, cache_tokens=512, snapshots=2)
    yield runtime
    runtime.close()


def test_what_it_leaves_is_taken_over(runtime: ModelRuntime) -> None:
    """A slot's next request finds no trace: its generation is another one."""
    run_every_program(runtime)
    program = runtime.geometry.of(Operation.INITIALIZE)[0]
    sequence = runtime.submit(Round(program.index, (LaneWork(0, 1, 0, (), False, (), GREEDY),)))
    assert runtime.wait(sequence, 60_000)
    runtime.read(sequence)
    run_every_program(runtime)


def test_a_refused_lane_is_an_error(runtime: ModelRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every program begins its requests with a generation that nothing was admitted under.
    monkeypatch.setattr(
        "helios.runtime.every_program._Exercise._begin", lambda self, prompts=(): None
    )
    with pytest.raises(ExecutionError, match=r"program prefill.*STALE_GENERATION"):
        run_every_program(runtime)
