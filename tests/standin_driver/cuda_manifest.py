"""Any manifest as one of a cuda target: a node for each launch, of functions that do nothing.

The modules are images that only the stand-in driver takes. Beside its operands the first node of
every program, or every node, has an argument of each other kind.
"""

from __future__ import annotations

from helios.schema import contract_pb2 as contract
from helios.schema import execution_pb2 as pb
from tests.standin_driver.cubins import cubin

TARGET = "cuda:sm_90"
TRANSPORT, WORK = "module.transport", "module.work"
_HIDDEN = (8, 8)
_ALL_KINDS = (8, 8, 4, 8, 4, 4, 128, 4, 4, 8, 8)
COUNTERS, SCRATCH_SHAPE = 16, (8, 32)
SCRATCH_OFFSET, COUNTED_NBYTES = 64, 64
# Positions of the arguments of other kinds behind a node's operands.
COUNTER_ARGUMENT, SCRATCH_ARGUMENT, INT32, INT64, FLOAT32, ROW_COUNT, MAP = range(7)


def as_cuda(
    message: pb.ExecutionManifest, *, all_kinds_everywhere: bool = False
) -> tuple[pb.ExecutionManifest, dict[str, bytes]]:
    """A changed copy, and the modules that it names."""
    changed = pb.ExecutionManifest()
    changed.CopyFrom(message)
    changed.target = TARGET
    counters = _buffer(changed, "counters", pb.BUFFER_CLASS_COUNTER, pb.DTYPE_I32, (COUNTERS,), 4)
    scratch = _buffer(
        changed, "scratch", pb.BUFFER_CLASS_WORKSPACE, pb.DTYPE_BF16, SCRATCH_SHAPE, 2
    )
    at = -(-changed.workspace_nbytes // 256) * 256
    changed.buffers[scratch - 1].offset = at
    changed.workspace_nbytes = at + changed.buffers[scratch - 1].nbytes
    changed.cuda.functions.add(module=TRANSPORT, function="stage", threads=128)
    changed.cuda.functions.add(module=TRANSPORT, function="record", threads=128)
    changed.cuda.stage, changed.cuda.record = 0, 1
    functions: dict[tuple[int, ...], int] = {}

    def function(sizes: tuple[int, ...]) -> int:
        if sizes not in functions:
            functions[sizes] = len(changed.cuda.functions)
            name = f"work_{functions[sizes]}"
            shared = 100_000 if len(sizes) > 8 else 0
            changed.cuda.functions.add(
                module=WORK, function=name, threads=256, shared_nbytes=shared
            )
        return functions[sizes]

    for program in (*changed.programs, *changed.tuning):
        for number, launch in enumerate(program.launches):
            more = number == 0 or all_kinds_everywhere
            sizes = (8,) * len(launch.operands) + (_ALL_KINDS if more else ())
            node = launch.nodes.add(
                function=function(sizes), grid=(number + 1, 2, 1), programmatic=number % 3 != 1
            )
            for operand in launch.operands:
                if operand.buffer:
                    node.arguments.add(buffer=operand)
                else:
                    node.arguments.add(int64=0)
            if more:
                _add_all_kinds(node, counters, scratch)
    work = {
        changed.cuda.functions[index].function: (*sizes, *_HIDDEN)
        for sizes, index in functions.items()
    }
    transport = {"stage": (8,) * 3 + _HIDDEN, "record": (8,) * 5 + _HIDDEN}
    return changed, {TRANSPORT: cubin(transport), WORK: cubin(work)}


def _add_all_kinds(node: pb.CudaNode, counters: int, scratch: int) -> None:
    both, read = contract.ACCESS_MODE_READ_WRITE, contract.ACCESS_MODE_READ
    node.arguments.add(buffer=pb.Operand(buffer=counters, access=both))
    node.arguments.add(buffer=pb.Operand(buffer=scratch, access=both, byte_offset=SCRATCH_OFFSET))
    node.arguments.add(int32=-1)
    node.arguments.add(int64=1 << 40)
    node.arguments.add(float32=0.5)
    node.arguments.add(
        row_count=pb.CudaRowCount(
            buffer=pb.Operand(buffer=scratch, access=read), row_nbytes=COUNTED_NBYTES
        )
    )
    node.arguments.add(
        tensor_map=pb.CudaTensorMap(
            buffer=pb.Operand(buffer=scratch, access=read),
            dtype=pb.DTYPE_BF16,
            columns=SCRATCH_SHAPE[1],
            box=(4, 32),
            swizzle=64,
        )
    )


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
