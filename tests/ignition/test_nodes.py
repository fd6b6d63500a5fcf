"""Programs of a cuda target: what is recorded, lowered and placed holds together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from helios.contract import decode
from helios.errors import ContractError
from helios.runtime import manifest as m
from helios.runtime.capacities import least_cache
from helios.runtime.every_program import run_every_program
from helios.runtime.manifest_checks import check_manifest, check_weights
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import greedy_replay
from helios.runtime.reference.device import ReferenceDevice
from helios.runtime.reference.differ import LockstepDevice
from helios.schema import execution_pb2 as pb
from ignition.capture import nodes
from ignition.capture.program import ProgramRecorder
from ignition.kernels.cuda.launches import (
    Argument,
    At,
    CatalogueLaunch,
    Counters,
    CudaKernel,
    Fusion,
    NeighbouringLaunch,
    RowsOf,
    Scratch,
    TensorMap,
)
from ignition.preparation.checkpoints import open_checkpoint
from tests.ignition import lowered as fakes
from tests.ignition.lowered import Recorded
from tests.model_parts import capture

Folder = Callable[[str], Path]
VARIANTS = ("llama", "mistral", "qwen2", "qwen3")


@pytest.fixture
def recorded(checkpoint_folder: Folder) -> Callable[[str], Recorded]:
    return lambda variant: Recorded(open_checkpoint(checkpoint_folder(variant)))


Record = Callable[[str], Recorded]


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_recorded_passes_the_runtimes_checks(recorded: Record, variant: str) -> None:
    made = recorded(variant)
    manifest = decode_manifest(made.manifest())
    check_manifest(manifest, decode(made.serving))
    check_weights(manifest, {"weights": made.weights.nbytes})
    assert (manifest.target, manifest.abi) == ("cuda:sm_90", "helios-cuda-1")
    assert all(launch.nodes for program in manifest.programs for launch in program.launches)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_reference_replays_it_as_it_replays_the_same_model_of_cpu(
    recorded: Record, checkpoint_folder: Folder, variant: str
) -> None:
    made = recorded(variant)
    weights = {"weights": b"".join(made.weights.content())}
    of_cpu = capture(checkpoint_folder(variant), extents=fakes.EXTENTS)
    answers = []
    prompt = [3 + (7 * place) % 300 for place in range(70)]  # more than a page
    for runtime in (
        ModelRuntime.from_parts(decode(made.serving), made.manifest(), weights, target="reference"),
        of_cpu.load("reference"),
    ):
        with closing(runtime):
            answers.append(greedy_replay(runtime, prompt, 5))
    mine, theirs = answers
    assert [token.token for token in mine] == [token.token for token in theirs]
    for left, right in zip(mine, theirs, strict=True):
        assert left.logprob == pytest.approx(right.logprob, abs=1e-4)


def test_matrices_lie_row_by_row_and_content_fills_them(recorded: Record) -> None:
    made = recorded("qwen2")
    manifest = made.manifest()
    matrices = [b for b in manifest.buffers if b.packing == pb.PACKING_ROWS_BF16]
    assert len(matrices) == 1 + 2 * 4
    assert all(b.nbytes == 2 * b.shape[0] * b.shape[1] for b in matrices)
    content = np.frombuffer(b"".join(made.weights.content()), np.uint8)
    assert content.nbytes == made.weights.nbytes
    gate, up = (made.checkpoint.matrix(f"layers.1.{part}").row_bytes for part in ("gate", "up"))
    found = next(b for b in matrices if b.name == "layers.1.gate_up")
    rows = content[found.offset :][: found.nbytes].reshape(found.shape[0], -1)
    for group in range(gate.shape[0] // 8):
        mine = slice(8 * group, 8 * group + 8)
        assert (rows[16 * group : 16 * group + 8] == gate[mine]).all()
        assert (rows[16 * group + 8 : 16 * group + 16] == up[mine]).all()


def test_attention_knows_the_lanes_where_they_have_several_rows(recorded: Record) -> None:
    manifest = decode_manifest(recorded("llama").manifest())
    for program in manifest.programs:
        kernels = {launch.kernel.name for launch in program.launches}
        assert not kernels & {"attention", "rope_and_cache"}
        attending = [x for x in program.launches if x.kernel.name == "attention_f16"]
        for launch in attending:
            given = [operand(launch, name) for name in ("lanes", "query_length")]
            # In the last layer of a prompt each row that samples attends by itself.
            alone = launch is attending[-1] and not program.name.startswith("scored")
            several = not program.name.startswith("decode") and not alone
            assert [place is not None for place in given] == [several] * 2
            lanes = launch.integers[launch.kernel.integers.index("lane_capacity")]
            assert lanes == (program.batch_capacity if several else 0)
            capacity = launch.integers[0]
            assert capacity == (
                program.packed_token_capacity if several else program.batch_capacity
            )


def test_queries_of_the_rows_that_sample_reach_their_attention(recorded: Record) -> None:
    made = recorded("llama")
    seen = 0
    for program in decode_manifest(made.manifest()).programs:
        for before, selecting, after in zip(
            program.launches, program.launches[1:], program.launches[2:], strict=False
        ):
            if selecting.kernel.name != "select_attending":
                continue
            seen += 1
            assert before.kernel.name == "rope_and_cache_f16"
            assert after.kernel.name == "attention_f16"
            assert place(selecting, "queries") == place(before, "queries")
            for out, name in (
                ("selected_rows", "rows"), ("out_queries", "queries"),
                ("out_positions", "positions"), ("out_slot", "slot"),
            ):  # fmt: skip
                assert place(selecting, out) == place(after, name)
    assert seen == 3  # two programs of prompts, a mixed one


def operand(launch: m.Launch, name: str) -> m.Operand | None:
    """An operand by its name."""
    return launch.operands[[one.name for one in launch.kernel.operands].index(name)]


def place(launch: m.Launch, name: str) -> tuple[int, int]:
    """Where an operand lies: buffer and first byte."""
    found = operand(launch, name)
    assert found is not None
    return found.buffer, found.byte_offset


def test_scratch_is_memory_of_its_launch_alone_and_counters_are_shared(recorded: Record) -> None:
    made = recorded("llama")
    manifest = decode_manifest(made.manifest())
    counters = [b for b in manifest.buffers if b.buffer_class is m.BufferClass.COUNTER]
    most = max(
        sum(operand is not None for operand in launch.operands)
        for program in manifest.programs
        for launch in program.launches
    )
    assert [b.shape for b in counters] == [(most,)]
    for program in made.recorder.programs:
        for number, launch in enumerate(program.launches):
            (scratch,) = launch.scratch
            assert not overlapping(manifest, scratch.index, alive_at(program, number))


def alive_at(program: ProgramRecorder, at: int) -> set[int]:
    """Buffers that a launch uses, or that hold what a later one reads."""
    alive: set[int] = set()
    for launch in reversed(program.launches[at + 1 :]):
        uses = [use for use in launch.uses if use is not None]
        alive -= {use.buffer.index for use in uses if use.effect == "w"}
        alive |= {use.buffer.index for use in uses if "r" in use.effect}
    return alive | {use.buffer.index for use in program.launches[at].uses if use is not None}


def overlapping(manifest: m.Manifest, buffer: int, others: set[int]) -> set[int]:
    def extent(number: int) -> range:
        found = manifest.buffers[number]
        return range(found.offset, found.offset + found.nbytes)

    mine = extent(buffer)
    return {
        other
        for other in others - {buffer}
        if manifest.buffers[other].buffer_class is m.BufferClass.WORKSPACE
        and mine.start < extent(other).stop
        and extent(other).start < mine.stop
    }


def test_a_kernel_without_a_lowering_is_named(recorded: Record) -> None:
    lowerings = {name: make for name, make in fakes.LOWERINGS.items() if name != "commit"}
    with pytest.raises(ContractError, match=r"prefill\.p2 launch \d+: .*no kernel for commit"):
        recorded("llama").lower(lowerings=lowerings)


def fuse_norm(launches: Sequence[NeighbouringLaunch]) -> tuple[CudaKernel, ...] | None:
    """Norm and projection as one, where nothing else reads what is normalised."""
    norm, linear = launches
    if norm.places["out"] != linear.places["x"] or norm.places["out"] not in norm.unread:
        return None
    arguments: dict[str, Argument] = {
        "x": At("x", 0),
        "norm": At("weight", 0),
        "weight": At("weight", 1),
        "bias": At("bias", 1),
        "out": At("out", 1),
    }
    made = fakes.request("norm_linear", dict.fromkeys(arguments, "*i32"))
    return (CudaKernel(made, (1, 1, 1), arguments),)


def test_a_fusion_does_the_work_of_its_launches_and_keeps_their_inputs(recorded: Record) -> None:
    made = recorded("llama")
    message = made.manifest([Fusion(("weigh", "linear_weighed"), fuse_norm)])
    manifest = decode_manifest(message)
    check_manifest(manifest, decode(made.serving))
    fused = 0
    for program in manifest.programs:
        for number, launch in enumerate(program.launches):
            if launch.kernel.name != "weigh" or launch.nodes:
                continue
            fused += 1
            following = program.launches[number + 1]
            assert following.kernel.name == "linear_weighed"
            (node,) = following.nodes
            x, _, weight, bias, out = node.arguments[:5]
            assert x == launch.operands[1]
            assert weight == following.operands[3]
            assert bias == m.CudaInteger(0, m.CudaIntegerWidth.BITS_64)
            assert isinstance(x, m.Operand)
            assert isinstance(out, m.Operand)
            assert not overlapping(manifest, out.buffer, {x.buffer})
    # Of seven programs two layers each, and their heads, of which one scores in three parts.
    assert fused == 7 * 2 + 5 + 2 + 4


def test_the_differ_holds_fused_launches_together(recorded: Record) -> None:
    """What is between them needn't be written; what they leave is compared."""
    made = recorded("llama")
    message = made.manifest([Fusion(("weigh", "linear_weighed"), fuse_norm)])
    weights = {"weights": b"".join(made.weights.content())}

    class Fused(ReferenceDevice):
        """Leaves what is between fused launches as poison, and damages one product if told to."""

        damages = False

        def submit(self, program: int, frame: int, sequence: int) -> None:
            super().submit(program, frame, sequence)
            launches = self.loaded[program].launches
            for launch in launches[:-1]:
                for spec, operand in zip(launch.kernel.operands, launch.operands, strict=True):
                    if operand is not None and spec.name == "out":
                        self.array(operand.buffer, frame)[:] = np.nan
            if self.damages and launches[-1].kernel.name == "linear":
                operand = launches[-1].operands[-1]
                assert operand is not None
                self.array(operand.buffer, frame)[0] += 1

        def load(self, programs: Sequence[m.Program]) -> None:
            self.loaded = list(programs)
            super().load(programs)

    for damages in (False, True):
        candidate = Fused()
        candidate.damages = damages
        device = LockstepDevice(candidate)
        runtime = ModelRuntime.from_parts(
            decode(made.serving),
            message,
            weights,
            target="reference",
            device=device,
            capacities=least_cache(decode(made.serving), decode_manifest(message), 3),
        )
        with closing(runtime):
            run_every_program(runtime)
        if damages:
            assert device.first_difference is not None
            assert device.first_difference.kernel == "linear"
        else:
            assert device.first_difference is None, str(device.first_difference)
            assert device.compared > 100


def kernel_with(kind: str, value: Argument, **options: object) -> fakes.Lowering:
    def lowering(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
        made = fakes.request("wrong", {"value": kind}, **options)
        return (CudaKernel(made, (1, 1, 1), {"value": value}),)

    return lowering


WRONG: list[tuple[str, Argument, str]] = [
    ("i32", RowsOf("nothing", 4), "no operand of load_pending"),
    ("*i32", At("nothing"), "no operand of load_pending"),
    ("*i32", 1, "where the kernel takes an address"),
    ("i32", At("rows"), "where the kernel takes i32"),
    ("i32", 1 << 31, "where the kernel takes i32"),
    ("i32", 1.5, "where the kernel takes"),
    ("i8", 1, "where the kernel takes i8"),
    ("*i32", TensorMap("rows", 8), "is a tensor map where the kernel takes"),
    ("fp32", Scratch("x", pb.DTYPE_F32, (1,)), "where the kernel takes fp32"),
    ("i64", Counters(1), "where the kernel takes i64"),
]


@pytest.mark.parametrize(("kind", "value", "said"), WRONG)
def test_an_argument_that_does_not_fit_is_named(
    recorded: Record, kind: str, value: Argument, said: str
) -> None:
    made = recorded("llama")
    lowerings = {**fakes.LOWERINGS, "load_pending": kernel_with(kind, value)}
    lowered = made.lower(lowerings=lowerings)
    with pytest.raises(ContractError, match=said) as raised:
        nodes.place(made.recorder, lowered, fakes.compiled(lowered))
    assert "(load_pending, wrong) argument value" in raised.value.where


def test_a_promised_multiple_of_16_is_one(recorded: Record) -> None:
    made = recorded("llama")
    wrong = kernel_with("i32", 24, multiples_of_16=["value"])
    lowered = made.lower(lowerings={**fakes.LOWERINGS, "load_pending": wrong})
    with pytest.raises(ContractError, match="multiple of 16"):
        nodes.place(made.recorder, lowered, fakes.compiled(lowered))
