"""What a cuda target adds to a manifest: decoded, refused by its path, held against launches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.contract import decode
from helios.contract.enums import AccessMode
from helios.errors import ContractError
from helios.runtime import manifest as m
from helios.runtime.capacities import plan_memory
from helios.runtime.manifest_checks import check_manifest, check_modules
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import contract_pb2 as contract
from helios.schema import execution_pb2 as pb
from tests.contract.damage import damaged
from tests.contract.sample import sample_contract
from tests.runtime.sample_cuda import MODULES, sample_cuda_manifest
from tests.runtime.sample_manifest import sample_manifest
from tests.standin_driver.cuda_manifest import (
    COUNTED_NBYTES,
    COUNTER_ARGUMENT,
    COUNTERS,
    FLOAT32,
    MAP,
    ROW_COUNT,
    SCRATCH_ARGUMENT,
    SCRATCH_OFFSET,
    SCRATCH_SHAPE,
    WORK,
)

Change = Callable[[pb.ExecutionManifest], object]
PROGRAM, LAUNCH = 3, 2
NODE = f"programs[{PROGRAM}].launches[{LAUNCH}].nodes[0]"


def launch(message: pb.ExecutionManifest) -> pb.Launch:
    return message.programs[PROGRAM].launches[LAUNCH]


def node(message: pb.ExecutionManifest) -> pb.CudaNode:
    return launch(message).nodes[0]


OPERANDS = len(launch(sample_cuda_manifest()).operands)


def argument(message: pb.ExecutionManifest, kind: int) -> pb.CudaArgument:
    return node(message).arguments[OPERANDS + kind]


def at(kind: int, field: str) -> str:
    return f"{NODE}.arguments[{OPERANDS + kind}]{field}"


def index_of(message: pb.ExecutionManifest, name: str) -> int:
    return [buffer.name for buffer in message.buffers].index(name)


def buffer(message: pb.ExecutionManifest, name: str) -> pb.Buffer:
    return message.buffers[index_of(message, name)]


def tensor_map(message: pb.ExecutionManifest) -> pb.CudaTensorMap:
    return argument(message, MAP).tensor_map


def test_every_part_of_a_node_arrives() -> None:
    manifest = decode_manifest(sample_cuda_manifest())
    assert manifest.cuda is not None
    assert (manifest.cuda.stage, manifest.cuda.record) == (0, 1)
    found = manifest.programs[PROGRAM].launches[LAUNCH]
    assert len(found.nodes) == 1
    decoded = found.nodes[0]
    assert (decoded.grid, decoded.programmatic) == ((LAUNCH + 1, 2, 1), True)
    work = manifest.cuda.functions[decoded.function]
    assert (work.module, work.threads, work.shared_nbytes) == (WORK, 256, 100_000)
    assert decoded.arguments[:OPERANDS] == found.operands
    scratch = manifest.buffer_index["scratch"]
    assert decoded.arguments[OPERANDS:] == (
        m.Operand(manifest.buffer_index["counters"], 0, AccessMode.READ_WRITE),
        m.Operand(scratch, SCRATCH_OFFSET, AccessMode.READ_WRITE),
        m.CudaInteger(-1, m.CudaIntegerWidth.BITS_32),
        m.CudaInteger(1 << 40, m.CudaIntegerWidth.BITS_64),
        0.5,
        m.CudaRowCount(m.Operand(scratch, 0, AccessMode.READ), COUNTED_NBYTES),
        m.CudaTensorMap(
            m.Operand(scratch, 0, AccessMode.READ), m.DType.BF16, SCRATCH_SHAPE[1], (4, 32), 64
        ),
    )


def test_nodes_agree_with_their_launches_and_counters_are_planned() -> None:
    manifest = decode_manifest(sample_cuda_manifest())
    check_manifest(manifest, decode(sample_contract()))
    check_modules(manifest, MODULES)
    counts = dict.fromkeys(m.LeadingCount, 2)
    taken = plan_memory(manifest, counts).nbytes_by_class()
    assert taken[m.BufferClass.COUNTER] == 4 * COUNTERS


def test_a_module_that_the_rank_lacks_is_refused() -> None:
    with pytest.raises(ContractError) as raised:
        check_modules(decode_manifest(sample_cuda_manifest()), MODULES[:1])
    assert raised.value.where == "cuda.functions[2].module", "the first of another module"
    check_modules(decode_manifest(sample_manifest()), ())


STRUCTURES: list[tuple[str, Change]] = [
    ("cuda", lambda x: x.ClearField("cuda")),
    ("cuda", lambda x: setattr(x, "target", "cpu")),
    ("cuda.stage", lambda x: setattr(x.cuda, "stage", 99)),
    ("cuda.record", lambda x: setattr(x.cuda, "record", 99)),
    ("cuda.functions[0].module", lambda x: setattr(x.cuda.functions[0], "module", "")),
    ("cuda.functions[1].function", lambda x: setattr(x.cuda.functions[1], "function", "\n")),
    ("cuda.functions[0].threads", lambda x: setattr(x.cuda.functions[0], "threads", 0)),
    ("cuda.functions[0].threads", lambda x: setattr(x.cuda.functions[0], "threads", 1025)),
    (
        "cuda.functions[0].shared_nbytes",
        lambda x: setattr(x.cuda.functions[0], "shared_nbytes", 232_449),
    ),
    (f"{NODE}.function", lambda x: setattr(node(x), "function", 99)),
    (f"{NODE}.function", lambda x: setattr(node(x), "function", 0)),
    (f"{NODE}.function", lambda x: setattr(node(x), "function", 1)),
    (f"{NODE}.grid", lambda x: node(x).grid.pop()),
    (f"{NODE}.grid", lambda x: node(x).grid.append(1)),
    (f"{NODE}.grid[0]", lambda x: node(x).grid.__setitem__(0, 0)),
    (f"{NODE}.grid[0]", lambda x: node(x).grid.__setitem__(0, 1 << 31)),
    (f"{NODE}.grid[1]", lambda x: node(x).grid.__setitem__(1, 65_536)),
    (f"{NODE}.grid[2]", lambda x: node(x).grid.__setitem__(2, 65_536)),
    (f"{NODE}.arguments", lambda x: node(x).arguments.extend([pb.CudaArgument(int32=1)] * 1024)),
    (at(FLOAT32, ""), lambda x: argument(x, FLOAT32).ClearField("float32")),
    (
        at(FLOAT32, ".float32"),
        lambda x: setattr(argument(x, FLOAT32), "float32", float("inf")),
    ),
    (
        at(COUNTER_ARGUMENT, ".buffer.buffer"),
        lambda x: setattr(argument(x, COUNTER_ARGUMENT).buffer, "buffer", 0),
    ),
    (
        at(COUNTER_ARGUMENT, ".buffer.buffer"),
        lambda x: setattr(argument(x, COUNTER_ARGUMENT).buffer, "buffer", 999),
    ),
    (
        at(COUNTER_ARGUMENT, ".buffer.byte_offset"),
        lambda x: setattr(argument(x, COUNTER_ARGUMENT).buffer, "byte_offset", 4 * COUNTERS),
    ),
    (
        at(COUNTER_ARGUMENT, ".buffer.byte_offset"),
        lambda x: setattr(argument(x, COUNTER_ARGUMENT).buffer, "byte_offset", 2),
    ),
    (
        at(SCRATCH_ARGUMENT, ".buffer.access"),
        lambda x: setattr(argument(x, SCRATCH_ARGUMENT).buffer, "buffer", index_of(x, "table") + 1),
    ),
    (
        at(SCRATCH_ARGUMENT, ".buffer.access"),
        lambda x: setattr(
            argument(x, SCRATCH_ARGUMENT).buffer, "buffer", index_of(x, "in.slot") + 1
        ),
    ),
    (
        at(MAP, ".tensor_map.buffer.buffer"),
        lambda x: setattr(tensor_map(x).buffer, "buffer", 0),
    ),
    (
        at(MAP, ".tensor_map.buffer.access"),
        lambda x: setattr(tensor_map(x).buffer, "access", contract.ACCESS_MODE_READ_WRITE),
    ),
    (
        at(MAP, ".tensor_map.buffer.byte_offset"),
        lambda x: setattr(tensor_map(x).buffer, "byte_offset", 8),
    ),
    (at(MAP, ".tensor_map.dtype"), lambda x: setattr(tensor_map(x), "dtype", 0)),
    (
        at(MAP, ".tensor_map.dtype"),
        lambda x: setattr(tensor_map(x), "dtype", pb.DTYPE_ACT_Q8),
    ),
    (at(MAP, ".tensor_map.columns"), lambda x: setattr(tensor_map(x), "columns", 0)),
    (at(MAP, ".tensor_map.columns"), lambda x: setattr(tensor_map(x), "columns", 24)),
    (at(MAP, ".tensor_map.columns"), lambda x: setattr(tensor_map(x).buffer, "byte_offset", 16)),
    (at(MAP, ".tensor_map.columns"), lambda x: setattr(tensor_map(x), "columns", 4)),
    (at(MAP, ".tensor_map.columns"), lambda x: setattr(tensor_map(x), "columns", 1 << 40)),
    (at(MAP, ".tensor_map.box"), lambda x: tensor_map(x).box.append(1)),
    (at(MAP, ".tensor_map.box[0]"), lambda x: tensor_map(x).box.__setitem__(0, 257)),
    (at(MAP, ".tensor_map.box[1]"), lambda x: tensor_map(x).box.__setitem__(1, 4)),
    (at(MAP, ".tensor_map.box[1]"), lambda x: tensor_map(x).box.__setitem__(1, 64)),
    (
        at(ROW_COUNT, ".row_count.buffer.buffer"),
        lambda x: setattr(argument(x, ROW_COUNT).row_count.buffer, "buffer", 0),
    ),
    (
        at(ROW_COUNT, ".row_count.row_nbytes"),
        lambda x: setattr(argument(x, ROW_COUNT).row_count, "row_nbytes", 0),
    ),
    (
        at(ROW_COUNT, ".row_count.row_nbytes"),
        lambda x: setattr(argument(x, ROW_COUNT).row_count, "row_nbytes", 513),
    ),
    (at(MAP, ".tensor_map.swizzle"), lambda x: setattr(tensor_map(x), "swizzle", 16)),
]


@pytest.mark.parametrize(
    ("path", "change"), STRUCTURES, ids=[f"{i}-{p}" for i, (p, _) in enumerate(STRUCTURES)]
)
def test_a_wrong_node_is_refused_by_its_path(path: str, change: Change) -> None:
    message = sample_cuda_manifest()
    change(message)
    with pytest.raises(ContractError) as raised:
        decode_manifest(message)
    assert raised.value.where == path


def test_a_cpu_launch_has_no_nodes() -> None:
    message = sample_manifest()
    launch(message).nodes.add(grid=(1, 1, 1))
    with pytest.raises(ContractError) as raised:
        decode_manifest(message)
    assert raised.value.where == f"programs[{PROGRAM}].launches[{LAUNCH}].nodes"


@pytest.mark.parametrize(
    ("field", "value"),
    [("dtype", pb.DTYPE_F32), ("leading", pb.LEADING_COUNT_REQUEST_SLOTS), ("offset", 64)],
)
def test_a_wrong_counter_is_refused_by_its_path(field: str, value: int) -> None:
    message = sample_cuda_manifest()
    setattr(buffer(message, "counters"), field, value)
    with pytest.raises(ContractError) as raised:
        decode_manifest(message)
    assert raised.value.where == f"buffers[{index_of(message, 'counters')}].{field}"


def test_no_kernel_takes_counters() -> None:
    message = sample_cuda_manifest()
    launch(message).operands[0].buffer = index_of(message, "counters") + 1
    with pytest.raises(ContractError) as raised:
        decode_manifest(message)
    assert raised.value.where == f"programs[{PROGRAM}].launches[{LAUNCH}].operands[0].buffer"


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_bytes_give_a_contract_error_or_a_manifest(data: st.DataObject) -> None:
    message = damaged(data, sample_cuda_manifest())
    if message is not None:
        with contextlib.suppress(ContractError):
            check_manifest(decode_manifest(message), decode(sample_contract()))
