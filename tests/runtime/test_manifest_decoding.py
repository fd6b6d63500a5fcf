"""Decoding a manifest, alone and against contract and weights: refusals name the field."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import IntEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.contract import decode
from helios.contract.enums import AccessMode
from helios.errors import ContractError
from helios.runtime import manifest as m
from helios.runtime.manifest_checks import check_manifest, check_weights
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import execution_pb2
from helios.schema import execution_pb2 as pb
from tests.contract.damage import damaged
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import WEIGHT_NBYTES, sample_manifest

Change = Callable[[pb.ExecutionManifest], object]


def index_of(message: pb.ExecutionManifest, name: str) -> int:
    return [buffer.name for buffer in message.buffers].index(name)


def buffer(message: pb.ExecutionManifest, name: str) -> pb.Buffer:
    return message.buffers[index_of(message, name)]


def test_every_part_arrives() -> None:
    manifest = decode_manifest(sample_manifest())
    assert manifest.target == "cpu"
    table = manifest.buffers[manifest.buffer_index["table"]]
    assert (table.buffer_class, table.packing, table.shape, table.nbytes, table.resource) == (
        m.BufferClass.WEIGHT,
        m.Packing.TILE16_F32,
        (50, 8),
        WEIGHT_NBYTES,
        "weights",
    )
    state = manifest.buffers[manifest.buffer_index["request_state"]]
    assert state.leading is m.LeadingCount.REQUEST_SLOTS
    decode_b2 = next(p for p in manifest.programs if p.name == "decode.b2")
    assert (decode_b2.batch_capacity, decode_b2.token_capacity) == (2, 1)
    assert decode_b2.completion == "tokens"
    assert decode_b2.accesses[1] == ("request", AccessMode.READ_WRITE)
    embed = decode_b2.launches[2]
    assert embed.kernel.name == "embed"
    assert embed.integers == (2, 50, 8, m.Packing.TILE16_F32)
    assert embed.floats == (1.0,)
    sample = decode_b2.launches[4]
    assert sample.operands[1] is None
    assert isinstance(manifest.destinations["page_table"], m.DeltaDestination)
    assert manifest.completions["tokens"].proposal_confidence is None


def test_manifest_and_contract_of_the_sample_agree() -> None:
    manifest = decode_manifest(sample_manifest())
    check_manifest(manifest, decode(sample_contract()))
    check_weights(manifest, {"weights": WEIGHT_NBYTES})


BUFFERS: list[tuple[str, str, str, object]] = [
    ("in.slot", "name", "name", ""),
    ("in.slot", "name", "name", "in.generation"),
    ("in.slot", "buffer_class", "buffer_class", 0),
    ("in.slot", "buffer_class", "buffer_class", 10),
    ("in.slot", "dtype", "dtype", 0),
    ("in.slot", "dtype", "dtype", 13),
    ("in.slot", "dtype", "nbytes", pb.DTYPE_U8),
    ("in.slot", "packing", "packing", 0),
    ("in.slot", "packing", "packing", 10),
    ("in.slot", "packing", "packing", pb.PACKING_TILE16_F32),
    ("in.slot", "leading", "leading", 0),
    ("in.slot", "leading", "leading", 5),
    ("in.slot", "leading", "leading", pb.LEADING_COUNT_CACHE_PAGES),
    ("x", "leading", "leading", pb.LEADING_COUNT_REQUEST_SLOTS),
    ("table", "leading", "leading", pb.LEADING_COUNT_REQUEST_SLOTS),
    ("in.slot", "nbytes", "nbytes", 15),
    ("in.slot", "nbytes", "nbytes", 17),
    ("in.slot", "nbytes", "nbytes", 2**64 - 1),
    ("in.slot", "offset", "offset", 64),
    ("in.slot", "resource", "resource", "weights"),
    ("table", "resource", "resource", ""),
    ("table", "offset", "offset", 1),
    ("table", "offset", "offset", 2**63),
    ("table", "nbytes", "nbytes", WEIGHT_NBYTES - 4),
    ("x", "offset", "offset", 2048),
    ("x", "offset", "offset", 2**64 - 64),
]


@pytest.mark.parametrize(
    ("name", "field", "refused", "value"),
    BUFFERS,
    ids=[f"{n}.{f}={v}" for n, f, _, v in BUFFERS],
)
def test_a_wrong_buffer_is_refused_by_its_path(
    name: str, field: str, refused: str, value: object
) -> None:
    message = sample_manifest()
    index = index_of(message, name)
    setattr(message.buffers[index], field, value)
    with pytest.raises(ContractError) as raised:
        decode_manifest(message)
    repeated = value == "in.generation"
    assert raised.value.where == f"buffers[{index + repeated}].{refused}"


SHAPES = [
    ([], "shape"),
    ([0], "shape[0]"),
    ([4, 2**63], "shape[1]"),
    ([2**41, 2**41], "shape"),
    ([2**32, 2**32, 2**32], "shape"),
    ([1] * 9, "shape"),
]


@pytest.mark.parametrize(("shape", "field"), SHAPES)
def test_impossible_shapes_are_refused_in_exact_arithmetic(shape: list[int], field: str) -> None:
    message = sample_manifest()
    message.buffers[0].shape[:] = shape
    product = 4
    for extent in shape:
        product = product * extent % 2**64  # what 64-bit arithmetic would make of it
    message.buffers[0].nbytes = product
    with pytest.raises(ContractError) as raised:
        decode_manifest(message)
    assert raised.value.where == f"buffers[0].{field}"


DECODE_B1 = 3


def launch(message: pb.ExecutionManifest, number: int) -> pb.Launch:
    return message.programs[DECODE_B1].launches[number]


PROGRAM = f"programs[{DECODE_B1}]"
UNKNOWN: list[tuple[str, Change]] = [
    ("buffers[0].<1000>", lambda x: x.buffers[0].MergeFromString(b"\xc0\x3e\x01")),
    (
        f"{PROGRAM}.launches[1].operands[2].<1000>",
        lambda x: launch(x, 1).operands[2].MergeFromString(b"\xc0\x3e\x01"),
    ),
]
STRUCTURES: list[tuple[str, Change]] = [
    ("target", lambda x: x.ClearField("target")),
    ("workspace_nbytes", lambda x: setattr(x, "workspace_nbytes", 2**63)),
    ("kernels[0].name", lambda x: setattr(x.kernels[0], "name", "unheard_of")),
    ("kernels[1].name", lambda x: x.kernels[1].CopyFrom(x.kernels[0])),
    ("kernels[0].operands", lambda x: x.kernels[0].operands.reverse()),
    ("kernels[0].integers", lambda x: x.kernels[0].integers.append("more")),
    ("kernels[0].floats", lambda x: x.kernels[0].floats.append("more")),
    (f"{PROGRAM}.name", lambda x: setattr(x.programs[DECODE_B1], "name", "prefill.p8")),
    (f"{PROGRAM}.operation", lambda x: setattr(x.programs[DECODE_B1], "operation", 0)),
    (f"{PROGRAM}.batch_capacity", lambda x: setattr(x.programs[DECODE_B1], "batch_capacity", 0)),
    (f"{PROGRAM}.launches", lambda x: x.programs[DECODE_B1].ClearField("launches")),
    (f"{PROGRAM}.inputs[4]", lambda x: x.programs[DECODE_B1].inputs.append("nothing")),
    (f"{PROGRAM}.inputs[4]", lambda x: x.programs[DECODE_B1].inputs.append("slot")),
    (f"{PROGRAM}.completion", lambda x: setattr(x.programs[DECODE_B1], "completion", "none")),
    (f"{PROGRAM}.accesses[0].mode", lambda x: x.programs[DECODE_B1].accesses[0].ClearField("mode")),
    (f"{PROGRAM}.launches[0].kernel", lambda x: setattr(launch(x, 0), "kernel", 99)),
    (f"{PROGRAM}.launches[0].operands", lambda x: launch(x, 0).operands.add()),
    (f"{PROGRAM}.launches[0].integers", lambda x: launch(x, 0).ClearField("integers")),
    (f"{PROGRAM}.launches[2].floats", lambda x: launch(x, 2).floats.append(1.0)),
    (
        f"{PROGRAM}.launches[2].floats[0]",
        lambda x: launch(x, 2).floats.__setitem__(0, float("nan")),
    ),
    (f"{PROGRAM}.launches[0].nodes", lambda x: launch(x, 0).nodes.add()),
    ("cuda", lambda x: x.cuda.SetInParent()),
    (
        f"{PROGRAM}.launches[0].operands[1].buffer",
        lambda x: launch(x, 0).operands[1].Clear(),
    ),
    (
        f"{PROGRAM}.launches[0].operands[1].buffer",
        lambda x: setattr(launch(x, 0).operands[1], "buffer", 999),
    ),
    (
        f"{PROGRAM}.launches[0].operands[1].access",
        lambda x: setattr(launch(x, 0).operands[1], "access", 0),
    ),
    (
        f"{PROGRAM}.launches[0].operands[3].access",
        lambda x: setattr(launch(x, 0).operands[3], "access", AccessMode.READ),
    ),
    (
        f"{PROGRAM}.launches[0].operands[3].access",
        lambda x: setattr(launch(x, 0).operands[3], "buffer", index_of(x, "table") + 1),
    ),
    (
        f"{PROGRAM}.launches[0].operands[1].byte_offset",
        lambda x: setattr(launch(x, 0).operands[1], "byte_offset", 96),
    ),
    (
        f"{PROGRAM}.launches[0].operands[1].byte_offset",
        lambda x: setattr(launch(x, 0).operands[1], "byte_offset", 2**64 - 4),
    ),
    (
        f"{PROGRAM}.launches[0].operands[1].byte_offset",
        lambda x: setattr(launch(x, 0).operands[1], "byte_offset", 2),
    ),
    (
        f"{PROGRAM}.launches[4].operands[1].buffer",
        lambda x: setattr(launch(x, 4).operands[1], "byte_offset", 4),
    ),
    ("destinations[1].name", lambda x: setattr(x.destinations[1], "name", "slot")),
    ("destinations[1].mode", lambda x: x.destinations[1].ClearField("staged_buffer")),
    (
        "destinations[1].staged_buffer",
        lambda x: setattr(x.destinations[1], "staged_buffer", "nothing"),
    ),
    (
        "destinations[1].staged_buffer",
        lambda x: setattr(x.destinations[1], "staged_buffer", "request_state"),
    ),
    ("destinations[1]", lambda x: setattr(x.destinations[1], "staged_buffer", "in.slot")),
    (
        "destinations[18].delta.target_buffer",
        lambda x: setattr(x.destinations[18].delta, "target_buffer", "x"),
    ),
    (
        "destinations[18].delta.target_buffer",
        lambda x: setattr(x.destinations[18].delta, "target_buffer", "request_state"),
    ),
    (
        "destinations[18].delta.count_buffer",
        lambda x: setattr(x.destinations[18].delta, "count_buffer", "in.page_table.value"),
    ),
    (
        "destinations[18].delta.index_buffer",
        lambda x: setattr(x.destinations[18].delta, "index_buffer", "in.temperature"),
    ),
    (
        "destinations[18].delta.value_buffer",
        lambda x: setattr(x.destinations[18].delta, "value_buffer", "in.slot"),
    ),
    ("completions[0].lanes", lambda x: setattr(x.completions[0], "lanes", "in.slot")),
    (
        "completions[0].lanes",
        lambda x: setattr(x.completions[0], "lanes", "completion.tokens"),
    ),
    (
        "completions[0].logprobs",
        lambda x: setattr(x.completions[0], "logprobs", "completion.tokens"),
    ),
]


@pytest.mark.clause("CONTRACT-6")
@pytest.mark.parametrize(("path", "change"), UNKNOWN, ids=[p for p, _ in UNKNOWN])
def test_unknown_fields_of_a_manifest_are_refused_by_their_path(path: str, change: Change) -> None:
    message = sample_manifest()
    change(message)
    with pytest.raises(ContractError, match="is an unknown field") as raised:
        decode_manifest(message)
    assert raised.value.where == path


@pytest.mark.parametrize(
    ("path", "change"), STRUCTURES, ids=[f"{i}-{p}" for i, (p, _) in enumerate(STRUCTURES)]
)
def test_a_wrong_structure_is_refused_by_its_path(path: str, change: Change) -> None:
    message = sample_manifest()
    change(message)
    with pytest.raises(ContractError) as raised:
        decode_manifest(message)
    assert raised.value.where == path


@pytest.mark.parametrize("sizes", [{}, {"weights": WEIGHT_NBYTES - 1}, {"other": WEIGHT_NBYTES}])
def test_weights_must_lie_inside_their_resource(sizes: dict[str, int]) -> None:
    with pytest.raises(ContractError, match=r"buffers\[\d+\]\.(resource|offset): "):
        check_weights(decode_manifest(sample_manifest()), sizes)


@pytest.mark.clause("CORE-10")
@pytest.mark.parametrize("abi", ["", "helios-cpu-1", "something from the future"])
def test_an_abi_label_gates_nothing(abi: str) -> None:
    message = sample_manifest()
    message.abi = abi
    assert decode_manifest(message).abi == abi


@pytest.mark.parametrize("mine", [m.BufferClass, m.DType, m.Packing, m.LeadingCount])
def test_enumerations_are_the_schemas_without_zero(mine: type[IntEnum]) -> None:
    wire = execution_pb2.DESCRIPTOR.enum_types_by_name[mine.__name__]
    prefix = wire.values_by_number[0].name.removesuffix("UNSPECIFIED")
    schema = {value.name.removeprefix(prefix): value.number for value in wire.values}
    assert schema.pop("UNSPECIFIED") == 0
    assert {member.name: member.value for member in mine} == schema


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_bytes_give_a_contract_error_or_a_manifest(data: st.DataObject) -> None:
    message = damaged(data, sample_manifest())
    if message is not None:
        with contextlib.suppress(ContractError):
            check_manifest(decode_manifest(message), decode(sample_contract()))
