"""The sample manifest for a cuda target: every launch has a node, with arguments of every kind.

Nothing could run it, since its modules don't exist: it is for what decodes and checks.
"""

from __future__ import annotations

from helios.schema import contract_pb2 as contract
from helios.schema import execution_pb2 as pb
from tests.runtime.sample_manifest import sample_manifest

TARGET = "cuda:sm_90"
MODULES = ("module.transport", "module.work")
STAGE, RECORD, WORK = range(3)
COUNTERS = 7
SCRATCH_ROWS, SCRATCH_COLUMNS = 8, 32
# Positions of the arguments of a node that follow its operands.
COUNTER_ARGUMENT, SCRATCH_ARGUMENT, INT32, INT64, FLOAT32, MAP, ROW_COUNT = range(7)


def sample_cuda_manifest() -> pb.ExecutionManifest:
    """A fresh valid message."""
    message = sample_manifest()
    message.target = TARGET
    transport, work = MODULES
    for module, function in ((transport, "stage"), (transport, "record"), (work, "work")):
        message.cuda.functions.add(
            module=module, function=function, threads=128, shared_nbytes=1024
        )
    message.cuda.stage, message.cuda.record = STAGE, RECORD
    counters = _buffer(message, "counters", pb.BUFFER_CLASS_COUNTER, pb.DTYPE_I32, (COUNTERS,), 4)
    scratch = _buffer(
        message,
        "scratch",
        pb.BUFFER_CLASS_WORKSPACE,
        pb.DTYPE_BF16,
        (SCRATCH_ROWS, SCRATCH_COLUMNS),
        2,
    )
    message.buffers[scratch - 1].offset = message.workspace_nbytes
    message.workspace_nbytes += message.buffers[scratch - 1].nbytes
    for program in message.programs:
        for launch in program.launches:
            node = launch.nodes.add(function=WORK, grid=(3, 2, 1), programmatic=True)
            for operand in launch.operands:
                if operand.buffer:
                    node.arguments.add(buffer=operand)
                else:
                    node.arguments.add(int64=0)
            both = contract.ACCESS_MODE_READ_WRITE
            node.arguments.add(buffer=pb.Operand(buffer=counters, access=both))
            node.arguments.add(buffer=pb.Operand(buffer=scratch, access=both))
            node.arguments.add(int32=-1)
            node.arguments.add(int64=1 << 40)
            node.arguments.add(float32=0.5)
            node.arguments.add(
                tensor_map=pb.CudaTensorMap(
                    buffer=pb.Operand(buffer=scratch, access=contract.ACCESS_MODE_READ),
                    dtype=pb.DTYPE_BF16,
                    columns=SCRATCH_COLUMNS,
                    box=(4, 32),
                    swizzle=64,
                )
            )
            node.arguments.add(
                row_count=pb.CudaRowCount(
                    buffer=pb.Operand(buffer=scratch, access=both),
                    row_nbytes=2 * SCRATCH_COLUMNS,
                )
            )
    return message


def _buffer(
    message: pb.ExecutionManifest,
    name: str,
    kind: pb.BufferClass,
    dtype: pb.DType,
    shape: tuple[int, ...],
    element_nbytes: int,
) -> int:
    """Adds a buffer; returns its number as operands have it."""
    nbytes = element_nbytes
    for extent in shape:
        nbytes *= extent
    message.buffers.add(
        name=name,
        buffer_class=kind,
        dtype=dtype,
        packing=pb.PACKING_PLAIN,
        leading=pb.LEADING_COUNT_FIXED,
        shape=shape,
        nbytes=nbytes,
    )
    return len(message.buffers)
