"""What the recorder records, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from helios.errors import ContractError
from helios.kernels.catalogue import ActivationFormat
from helios.schema import contract_pb2
from helios.schema import execution_pb2 as pb
from ignition.capture import ops
from ignition.capture.handles import Activation, BufferHandle, Matrix, Rows
from ignition.capture.program import ProgramRecorder
from ignition.capture.recorder import Recorder
from ignition.capture.target import CPU

ROWS, WIDTH, OUTPUTS = 4, 64, 32


class Scene:
    """A recorder with a program and what a `linear` launch needs."""

    def __init__(self) -> None:
        self.recorder = Recorder(CPU, weight_resource="weights")
        self.count = self.recorder.staged_input("live_rows", pb.DTYPE_I32, (1,))
        self.weight = self.recorder.buffers.weight(
            "w", pb.DTYPE_BF16, pb.PACKING_TILE16_BF16, (OUTPUTS, WIDTH)
        )
        self.program = self.begin("decode.b4")
        self.x = self.program.activation("x", ROWS, WIDTH, ActivationFormat.BF16)
        self.out = self.program.activation("out", ROWS, OUTPUTS)

    def begin(self, name: str) -> ProgramRecorder:
        return self.recorder.program(
            name,
            contract_pb2.OPERATION_DECODE,
            batch_capacity=ROWS,
            token_capacity=1,
            packed_token_capacity=ROWS,
        )

    def operands(self, **changes: BufferHandle) -> dict[str, BufferHandle]:
        given: dict[str, BufferHandle] = {
            "rows": self.count,
            "x": self.x.buffer,
            "weight": self.weight,
            "out": self.out.buffer,
        }
        return {**given, **changes}

    def integers(self, **changes: int) -> dict[str, int]:
        given = {
            "capacity": ROWS,
            "width": WIDTH,
            "outputs": OUTPUTS,
            "packing": pb.PACKING_TILE16_BF16,
            "format": ActivationFormat.BF16,
            "accumulate": 0,
        }
        return {**given, **changes}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_launch_is_recorded_in_catalogue_order(scene: Scene) -> None:
    embedding = scene.recorder.buffers.weight(
        "embedding", pb.DTYPE_F32, pb.PACKING_TILE16_F32, (50, WIDTH)
    )
    norm = scene.recorder.buffers.weight("norm", pb.DTYPE_F32, pb.PACKING_PLAIN, (WIDTH,))
    tokens = scene.recorder.staged_input("tokens", pb.DTYPE_I32, (ROWS,))
    rows = Rows(scene.count, ROWS)
    hidden = ops.embed(scene.program, "h", rows, tokens, Matrix(embedding, 50, WIDTH))
    normed = ops.rms_norm(
        scene.program, "x", rows, hidden, norm, epsilon=1e-5, form=ActivationFormat.BF16
    )
    ops.linear(scene.program, "out", rows, normed, Matrix(scene.weight, OUTPUTS, WIDTH))
    manifest = scene.recorder.manifest()

    assert [use.name for use in manifest.kernels] == ["embed", "rms_norm", "linear"]
    linear = manifest.programs[0].launches[2]
    names = [manifest.buffers[o.buffer - 1].name if o.buffer else None for o in linear.operands]
    assert names == ["in.live_rows", "decode.b4/x", "w", None, "decode.b4/out"]
    assert list(linear.integers) == [4, 64, 32, pb.PACKING_TILE16_BF16, ActivationFormat.BF16, 0]
    assert manifest.programs[0].launches[1].floats == [1e-5]
    assert list(manifest.programs[0].inputs) == ["live_rows", "tokens"]


def test_weights_are_laid_out_one_after_the_other_on_aligned_offsets() -> None:
    buffers = Recorder(CPU, weight_resource="weights").buffers
    first = buffers.weight("first", pb.DTYPE_F32, pb.PACKING_PLAIN, (3,))
    second = buffers.weight("second", pb.DTYPE_U8, pb.PACKING_TILE16_Q6_K, (17, 256))
    third = buffers.weight("third", pb.DTYPE_F32, pb.PACKING_PLAIN, (1,))
    assert (first.offset, first.nbytes) == (0, 12)
    # 32 rows of 8 blocks: 32 codes, two scales and an f16 each.
    assert (second.offset, second.nbytes) == (64, 32 * 8 * (32 + 2 + 2))
    assert third.offset == 64 + second.nbytes
    assert buffers.weights_nbytes == third.offset + 4
    assert {first.resource, second.resource} == {"weights"}


@pytest.mark.parametrize(("kernel", "match"), [("liner", "no such kernel"), ("", "no such kernel")])
def test_an_unknown_kernel_is_refused(scene: Scene, kernel: str, match: str) -> None:
    with pytest.raises(ContractError, match=match):
        scene.program.launch(kernel, scene.operands(), scene.integers())


def refused(scene: Scene, match: str, **call: Any) -> None:
    arguments: dict[str, Any] = {"operands": scene.operands(), "integers": scene.integers()}
    with pytest.raises(ContractError, match=match) as caught:
        scene.program.launch("linear", **{**arguments, **call})
    assert "decode.b4 launch 0 (linear)" in caught.value.where
    assert scene.program.launches == []


def test_missing_and_surplus_operands_are_refused(scene: Scene) -> None:
    missing = scene.operands()
    del missing["weight"]
    refused(scene, "operands are rows, x, weight, out; got rows, x, out", operands=missing)
    refused(scene, "got .* scale", operands=scene.operands(scale=scene.count))


def test_missing_and_surplus_attributes_are_refused(scene: Scene) -> None:
    fewer = scene.integers()
    del fewer["format"]
    refused(scene, "integers are capacity, width", integers=fewer)
    refused(scene, "integers are capacity, width", integers=scene.integers(stride=1))
    refused(scene, "floats are none; got scale", floats={"scale": 1.0})


@pytest.mark.parametrize(
    "changes",
    [{"capacity": ROWS + 1}, {"outputs": OUTPUTS + 16}, {"width": WIDTH + 2}],
)
def test_operands_smaller_than_their_extents_are_refused(
    scene: Scene, changes: dict[str, int]
) -> None:
    refused(scene, "bytes, the kernel uses", integers=scene.integers(**changes))


def test_other_dtypes_and_packings_are_refused(scene: Scene) -> None:
    refused(scene, "DTYPE_BF16, the kernel takes DTYPE_F32", integers=scene.integers(format=0))
    refused(
        scene,
        "PACKING_TILE16_BF16, the launch says PACKING_TILE16_F16",
        integers=scene.integers(packing=pb.PACKING_TILE16_F16),
    )
    packed = scene.recorder.buffers.weight(
        "bias", pb.DTYPE_F32, pb.PACKING_TILE16_F32, (OUTPUTS, 16)
    )
    refused(scene, "the launch says PACKING_PLAIN", operands=scene.operands(bias=packed))


def test_a_kernel_may_not_write_inputs_or_weights(scene: Scene) -> None:
    staged = scene.recorder.staged_input("f", pb.DTYPE_F32, (ROWS, OUTPUTS))
    refused(scene, "in.f may only be read", operands=scene.operands(out=staged))


def test_buffers_of_another_manifest_are_refused(scene: Scene) -> None:
    refused(scene, "isn't a buffer of this manifest", operands=scene.operands(rows=Scene().count))


def test_rows_of_symbolic_buffers_must_have_the_exact_size(scene: Scene) -> None:
    def load_pending(state: BufferHandle) -> None:
        lane = scene.recorder.buffers.plain(
            f"{state.name}.lane", pb.BUFFER_CLASS_INPUT, pb.DTYPE_I32, (ROWS,)
        )
        scene.program.launch(
            "load_pending",
            {
                "rows": scene.count,
                "slot": lane,
                "generation": lane,
                "state": state,
                "tokens": scene.program.workspace("tokens", pb.DTYPE_I32, (ROWS,)),
                "positions": scene.program.workspace("positions", pb.DTYPE_I32, (ROWS,)),
            },
            {"capacity": ROWS},
        )

    def state(name: str, row: int, leading: pb.LeadingCount) -> BufferHandle:
        return scene.recorder.buffers.plain(
            name, pb.BUFFER_CLASS_STATE, pb.DTYPE_U8, (row,), leading=leading
        )

    load_pending(state("right", 128, pb.LEADING_COUNT_REQUEST_SLOTS))
    with pytest.raises(ContractError, match="has rows of 256 bytes"):
        load_pending(state("wide", 256, pb.LEADING_COUNT_REQUEST_SLOTS))
    with pytest.raises(ContractError, match="LEADING_COUNT_REQUEST_SLOTS"):
        load_pending(state("whole", 128, pb.LEADING_COUNT_FIXED))


def test_names_are_unique(scene: Scene) -> None:
    with pytest.raises(ContractError, match="exists already"):
        scene.recorder.staged_input("live_rows", pb.DTYPE_I32, (1,))
    with pytest.raises(ContractError, match="exists already"):
        scene.begin("decode.b4")


def test_a_role_is_one_buffer(scene: Scene) -> None:
    assert scene.program.activation("x", ROWS, WIDTH, ActivationFormat.BF16) == scene.x
    with pytest.raises(ContractError, match="a role is one buffer"):
        scene.program.activation("x", ROWS, WIDTH)


def test_empty_buffers_are_refused(scene: Scene) -> None:
    with pytest.raises(ContractError, match="holds nothing"):
        scene.recorder.buffers.plain("none", pb.BUFFER_CLASS_INPUT, pb.DTYPE_I32, (0,))


def test_reading_scratch_that_nothing_wrote_is_refused(scene: Scene) -> None:
    scene.program.launch("linear", scene.operands(), scene.integers())
    with pytest.raises(ContractError, match="nothing has written") as caught:
        scene.recorder.manifest()
    assert caught.value.where == "decode.b4/x"


def test_rows_that_don_t_fit_the_weights_are_refused(scene: Scene) -> None:
    narrow = Activation(scene.x.buffer, WIDTH // 2, ActivationFormat.BF16)
    weight = Matrix(scene.weight, OUTPUTS, WIDTH)
    with pytest.raises(ContractError, match="rows of 32 don't fit weights of width 64"):
        ops.linear(scene.program, "y", Rows(scene.count, ROWS), narrow, weight)


@pytest.mark.parametrize(
    ("packing", "role", "expected"),
    [
        (pb.PACKING_TILE16_BF16, ops.Role.QKV, ActivationFormat.BF16),
        (pb.PACKING_TILE16_BF16, ops.Role.INNER, ActivationFormat.BF16),
        (pb.PACKING_TILE16_BF16, ops.Role.HEAD, ActivationFormat.F32),
        (pb.PACKING_TILE16_F16, ops.Role.INNER, ActivationFormat.F32),
        (pb.PACKING_TILE16_F32, ops.Role.HEAD, ActivationFormat.F32),
        (pb.PACKING_TILE16_Q4_1, ops.Role.QKV, ActivationFormat.Q16),
        (pb.PACKING_TILE16_Q4_PAIRS, ops.Role.QKV, ActivationFormat.Q8_PAIRS),
        (pb.PACKING_TILE16_Q4_PAIRS, ops.Role.INNER, ActivationFormat.Q8_PAIRS),
        (pb.PACKING_TILE16_Q6_K, ops.Role.INNER, ActivationFormat.Q8),
        (pb.PACKING_TILE16_Q8_0, ops.Role.HEAD, ActivationFormat.Q16),
    ],
)
def test_the_input_format_follows_packing_and_role(
    packing: pb.Packing, role: ops.Role, expected: ActivationFormat
) -> None:
    buffers = Recorder(CPU, weight_resource="w").buffers
    matrix = Matrix(buffers.weight("m", pb.DTYPE_U8, packing, (16, 256)), 16, 256)
    assert ops.input_format(matrix, role) is expected


def test_an_operand_may_begin_inside_its_buffer(scene: Scene) -> None:
    """As rows from some row on; the rest must hold what the kernel uses."""
    tokens = scene.recorder.staged_input("tokens", pb.DTYPE_I32, (ROWS,))
    embedding = scene.recorder.buffers.weight(
        "embedding", pb.DTYPE_F32, pb.PACKING_TILE16_F32, (50, WIDTH)
    )
    norm = scene.recorder.buffers.weight("norm", pb.DTYPE_F32, pb.PACKING_PLAIN, (WIDTH,))
    rows = Rows(scene.count, ROWS)
    hidden = ops.embed(scene.program, "h", rows, tokens, Matrix(embedding, 50, WIDTH))

    def normed(role: str, start: int, rows: int) -> None:
        part = hidden.from_row(start)
        ops.rms_norm(
            scene.program, role, Rows(scene.count, rows), part, norm, 1e-5, ActivationFormat.F32
        )

    normed("all", 0, ROWS)
    normed("last", ROWS - 1, 1)
    with pytest.raises(ContractError, match=f"has {4 * WIDTH} bytes, the kernel uses {8 * WIDTH}"):
        normed("too many", ROWS - 1, 2)
    first, last = scene.recorder.manifest().programs[0].launches[1:]
    assert [first.operands[1].byte_offset, last.operands[1].byte_offset] == [0, 4 * WIDTH * 3]
    assert first.operands[1].buffer == last.operands[1].buffer
    with pytest.raises(ContractError, match="can't be used in part"):
        ops.linear_into(
            scene.program,
            Rows(scene.count, 1),
            scene.x,
            Matrix(scene.weight, OUTPUTS, WIDTH),
            scene.out.buffer.from_byte(4 * OUTPUTS),
        )


def test_a_section_has_roles_of_its_own(scene: Scene) -> None:
    with scene.program.section("a"), scene.program.section("b"):
        inner = scene.program.workspace("out", pb.DTYPE_I32, (3,))
    assert inner.name == "decode.b4/a.b.out"
    assert scene.program.workspace("out", pb.DTYPE_F32, (ROWS, OUTPUTS)) == scene.out.buffer
