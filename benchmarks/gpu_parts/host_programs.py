"""A device with programs that compute nothing: chains of counting nodes between an input and a
record that repeats it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from helios.contract.enums import AccessMode, Operation
from helios.kernels.catalogue import BY_NAME
from helios.runtime.device import DeviceOptions, MemoryPlan, PlannedBuffer
from helios.runtime.devices.cuda.device import CudaDevice
from helios.runtime.manifest import (
    Buffer,
    BufferClass,
    CudaFunction,
    CudaInteger,
    CudaIntegerWidth,
    CudaNode,
    CudaTarget,
    DType,
    Launch,
    LeadingCount,
    Operand,
    Packing,
    Program,
)

FUNCTIONS = ("stage", "record", "step", "echo", "spin")
STAGE, RECORD, STEP, ECHO, SPIN = range(5)
COUNT_CTAS = 132
# Bytes of what travels each way in a round: of a lane, of many, of a long prompt.
SMALL, MEDIUM, LARGE = 1024, 16 << 10, 64 << 10
IN_PLACE = 256 << 10
SIZES = {"small": SMALL, "medium": MEDIUM, "large": LARGE, "in_place": IN_PLACE}
_BLOCK = 1024


def save_modules(folder: Path, architecture: str) -> None:
    """Compiles the functions; needs Triton."""
    from gpu_parts.host_kernels import requests
    from ignition.kernels.cuda.compile import compile
    from ignition.kernels.cuda.transport import RECORD as RECORDING
    from ignition.kernels.cuda.transport import STAGE as STAGING

    folder.mkdir(parents=True, exist_ok=True)
    known = {"stage": STAGING, "record": RECORDING, **requests()}
    facts = {}
    for name in FUNCTIONS:
        compiled = compile(known[name], architecture)
        (folder / f"{name}.cubin").write_bytes(compiled.cubin)
        facts[name] = (compiled.function, compiled.threads, compiled.shared_nbytes)
    text = json.dumps({"architecture": architecture, "functions": facts})
    (folder / "functions.json").write_text(text)


@dataclass(frozen=True)
class Parts:
    """What a device is opened with, and the buffers of its plan by name."""

    target: str
    cuda: CudaTarget
    modules: dict[str, bytes]
    plan: MemoryPlan
    index: dict[str, int]

    def open(self, round_limit_s: float = 60.0) -> CudaDevice:
        """A device without memory."""
        options = DeviceOptions(round_limit_s=round_limit_s)
        return CudaDevice(self.target, options, self.cuda, self.modules)


def load_parts(folder: Path, weight_nbytes: int = 0) -> Parts:
    """From a folder of `save_modules`."""
    saved = json.loads((folder / "functions.json").read_text())
    functions = tuple(
        CudaFunction(name, function, threads, shared)
        for name, (function, threads, shared) in saved["functions"].items()
    )
    modules = {name: (folder / f"{name}.cubin").read_bytes() for name in FUNCTIONS}
    buffers = [_buffer("numbers", BufferClass.STATE, COUNT_CTAS * _BLOCK * 4)]
    for name, nbytes in SIZES.items():
        buffers.append(_buffer(f"in.{name}", BufferClass.INPUT, nbytes))
        buffers.append(_buffer(f"out.{name}", BufferClass.COMPLETION, nbytes))
    buffers.append(_buffer("flag", BufferClass.STATE, 16))
    if weight_nbytes:
        buffers.append(_buffer("weight", BufferClass.WEIGHT, weight_nbytes, "weights"))
    planned = tuple(PlannedBuffer(buffer, buffer.shape, buffer.nbytes) for buffer in buffers)
    return Parts(
        f"cuda:{saved['architecture']}",
        CudaTarget(functions, STAGE, RECORD),
        modules,
        MemoryPlan(planned, {}, 0),
        {buffer.name: number for number, buffer in enumerate(buffers)},
    )


def chain(parts: Parts, size: str, nodes: int, ctas: int = COUNT_CTAS) -> Program:
    """Echoes an input of a size after `nodes` counting nodes of so many CTAs."""
    launches = [_launch(parts, size, _step(parts, ctas)) for _ in range(nodes)]
    return _program(f"chain.{size}.{nodes}", (*launches, _launch(parts, size, _echo(parts, size))))


def hanging(parts: Parts) -> Program:
    """Never ends."""
    node = CudaNode(SPIN, (1, 1, 1), (_operand(parts, "flag"),), programmatic=True)
    return _program("hanging", (_launch(parts, "small", node),))


def faulting(parts: Parts) -> Program:
    """Reads where no memory is."""
    wrong = CudaInteger(16, CudaIntegerWidth.BITS_64)
    arguments = (wrong, _operand(parts, "flag"), _count(4))
    node = CudaNode(ECHO, (1, 1, 1), arguments, programmatic=True)
    return _program("faulting", (_launch(parts, "small", node),))


def _step(parts: Parts, ctas: int) -> CudaNode:
    return CudaNode(STEP, (ctas, 1, 1), (_operand(parts, "numbers"),), programmatic=True)


def _echo(parts: Parts, size: str) -> CudaNode:
    count = SIZES[size] // 4
    arguments = (_operand(parts, f"in.{size}"), _operand(parts, f"out.{size}"), _count(count))
    return CudaNode(ECHO, (-(-count // _BLOCK), 1, 1), arguments, programmatic=True)


def _launch(parts: Parts, size: str, node: CudaNode) -> Launch:
    """The device reads off a launch which inputs and records its program has, no more. Inputs are
    staged where several launches name them."""
    counts = size == "in_place" and node.function == STEP
    read = _operand(parts, "numbers" if counts else f"in.{size}")
    write = _operand(parts, f"out.{size}")
    return Launch(BY_NAME["scatter_i32"], (read, read, read, write), (1,), (), (node,))


def _program(name: str, launches: tuple[Launch, ...]) -> Program:
    return Program(name, Operation.DECODE, 1, 0, 1, 1, launches, (), "", (), ())


def _operand(parts: Parts, name: str) -> Operand:
    return Operand(parts.index[name], 0, AccessMode.READ_WRITE)


def _count(value: int) -> CudaInteger:
    return CudaInteger(value, CudaIntegerWidth.BITS_32)


def _buffer(name: str, kind: BufferClass, nbytes: int, resource: str = "") -> Buffer:
    return Buffer(
        name,
        kind,
        DType.I32,
        Packing.PLAIN,
        LeadingCount.FIXED,
        (nbytes // 4,),
        nbytes,
        0,
        resource,
    )
