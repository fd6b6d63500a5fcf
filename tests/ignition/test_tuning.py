"""Preparation with tuning: what is captured, and that answers stay bit for bit the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import open_core
from helios.engine import Engine, GenerationOptions
from helios.kernels.catalogue import BLOCKINGS
from helios.runtime import Capacities, DeviceOptions, NativeModel
from helios.runtime.device import FRAMES
from helios.runtime.devices.cpu import CpuDevice
from helios.runtime.manifest import BufferClass, Manifest, Program
from helios.runtime.oracle import greedy_replay
from helios.runtime.reference.differ import LockstepDevice
from helios.runtime.targets import deployed_rank, read_manifest
from ignition.preparation.comparison import Verdict
from ignition.preparation.prepare import TUNING_ON, Options, prepare
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.rebuild import rebuild
from tests.silence import Silent

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OPTIONS = Options(
    namespace="tests", served_id="tiny", max_active=2, prefill=(8, 32), decode=(1, 2),
    max_context=128, tuning=True, mixed=(32,), scored_prefill=(8,),
)  # fmt: skip
PROMPTS = ([5, 9, 2, 7], [11, 3] * 9, [1])


@pytest.fixture(scope="module", params=[WeightStorage.AS_STORED, WeightStorage.INT8])
def cores(
    request: pytest.FixtureRequest,
    checkpoint_folder: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path]:
    """A core with tuning and the same without."""
    folder = tmp_path_factory.mktemp("tuned")
    options = replace(OPTIONS, storage=request.param)
    for name, tuning in (("tuned", True), ("plain", False)):
        chosen = replace(options, tuning=tuning)
        prepare(checkpoint_folder("llama"), folder / name, chosen, KEY, Silent())
    return folder / "tuned", folder / "plain"


def manifest_of(core: Path) -> Manifest:
    opened = open_core(core, accept="tests")
    return read_manifest(opened, deployed_rank(opened, "cpu"))


def kernels(program: Program) -> list[str]:
    return [launch.kernel.name for launch in program.launches]


def test_each_program_that_multiplies_has_a_producer(cores: tuple[Path, Path]) -> None:
    manifest = manifest_of(cores[0])
    multiplying = ["prefill.p8", "prefill.p32", "decode.b1", "decode.b2", "mixed.b2p32",
                   "scored_prefill.p8"]  # fmt: skip
    assert [producer.name for producer in manifest.tuning] == [f"tune.{n}" for n in multiplying]
    programs = {program.name: program for program in manifest.programs}
    assert programs["initialize.b2"].tuned == ()
    for name, producer in zip(multiplying, manifest.tuning, strict=True):
        program = programs[name]
        assert {"linear", "linear_silu_mul"}.isdisjoint(kernels(program))
        # Query, output, down and the head, and the gated projection: a launch a shape, and another
        # for the last layer's where only rows that sample have one.
        selects = "select_attending" in kernels(program)
        assert kernels(producer).count("tune_linear_silu_mul") == 1 + selects
        assert set(kernels(producer)) == {"tune_linear", "tune_linear_silu_mul"}
        assert program.tuned == tuple(
            (f"tuned.{name}.{number}", producer.name) for number in range(len(producer.launches))
        )
        for launch in producer.launches:
            x, weight, out, choice = (manifest.buffers[o.buffer] for o in launch.operands if o)
            assert choice.buffer_class is BufferClass.TUNED
            assert weight.buffer_class is BufferClass.WEIGHT
            assert {x.buffer_class, out.buffer_class} == {BufferClass.WORKSPACE}


def test_projections_read_the_choice_of_their_own_shape(cores: tuple[Path, Path]) -> None:
    manifest = manifest_of(cores[0])
    shapes = {}
    for producer in manifest.tuning:
        for launch in producer.launches:
            choice = launch.operands[-1]
            assert choice is not None
            # Rows, width, outputs, packing, format.
            shapes[choice.buffer] = launch.integers[:5]
    for program in manifest.programs:
        for launch in program.launches:
            if launch.kernel.name.endswith("_tuned"):
                tuning = launch.operands[-1]
                assert tuning is not None
                assert shapes[tuning.buffer] == launch.integers[:5]


def test_without_the_option_nothing_is_tuned(cores: tuple[Path, Path]) -> None:
    manifest = manifest_of(cores[1])
    assert manifest.tuning == ()
    assert not any(program.tuned for program in manifest.programs)
    assert BufferClass.TUNED not in {buffer.buffer_class for buffer in manifest.buffers}


@pytest.mark.clause("BOOT-10")
def test_answers_are_bit_for_bit_those_without_tuning(cores: tuple[Path, Path]) -> None:
    options = GenerationOptions(max_tokens=12, temperature=0.8, seed=5)
    answers = []
    for core in cores:
        with Engine.open(core, accept="tests", threads=2) as engine:
            answers.append(engine.generate(PROMPTS, options))
            assert ("tune" in engine.info.startup_ms) == (core.name == "tuned")
    assert answers[0] == answers[1]
    assert len({answer.tokens for answer in answers[0]}) == len(PROMPTS)


def test_tuning_is_recorded_and_rebuilt(
    cores: tuple[Path, Path], checkpoint_folder: Callable[[str], Path]
) -> None:
    tuned, plain = (open_core(core, accept="tests").deployment.rebuild for core in cores)
    assert tuned.options["tuning"] == TUNING_ON
    assert "tuning" not in plain.options
    comparison = rebuild(cores[0], checkpoint_folder("llama"), Silent())
    assert comparison.verdict is Verdict.SAME


def test_a_tuned_core_agrees_with_the_reference_launch_by_launch(cores: tuple[Path, Path]) -> None:
    device = LockstepDevice(CpuDevice(DeviceOptions(threads=1)))
    core = open_core(cores[0], accept="tests")
    one = Capacities(request_slots=1)
    with NativeModel.load(core, capacities=one, devices=(device,)) as model:
        greedy_replay(model.runtime, PROMPTS[0], 3)
        assert device.first_difference is None
        measured = sum(len(p.launches) for p in manifest_of(cores[0]).tuning)
        assert 0 < device.compared < model.runtime.launches() < device.compared + measured


@pytest.mark.clause("BOOT-10")
def test_only_what_is_selected_is_tuned(cores: tuple[Path, Path]) -> None:
    """Fewer slots need fewer producers; the others' buffers keep their zeros."""
    core = open_core(cores[0], accept="tests")
    one = Capacities(request_slots=1)
    with NativeModel.load(core, options=DeviceOptions(threads=1), capacities=one) as model:
        runtime = model.runtime
        choices = [int(runtime.read_buffer(f"tuned.decode.b1.{n}")[0]) for n in range(4)]
        assert all(0 <= choice < BLOCKINGS for choice in choices)
        # Four producers ran: three programs for prompts and one DECODE program.
        left_out = ("tune.decode.b2", "tune.mixed.b2p32")
        assert runtime.launches() == sum(
            len(p.launches) for p in manifest_of(cores[0]).tuning if p.name not in left_out
        )
    assert FRAMES == 2
