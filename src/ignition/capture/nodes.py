"""Nodes of a cuda target's programs: kernels with their arguments resolved to buffers.

`lower_all` says what has to be compiled; `place` takes what became of it, declares scratch and
counters, and gives the recorder's launches their nodes. Neither runs a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from helios.errors import ContractError
from helios.kernels.catalogue import OperandSpec
from helios.schema import contract_pb2 as contract
from helios.schema import execution_pb2 as pb
from ignition.capture.buffers import BufferTable
from ignition.capture.handles import ELEMENT_NBYTES, BufferHandle
from ignition.capture.liveness import OperandUse, RecordedLaunch
from ignition.capture.lowering import Kernels, LoweredLaunches, lower
from ignition.capture.program import ProgramRecorder
from ignition.capture.recorder import ACCESS, Recorder
from ignition.kernels.cuda.launches import (
    Argument,
    At,
    Counters,
    CudaKernel,
    RowsOf,
    Scratch,
    TensorMap,
)

if TYPE_CHECKING:
    from ignition.kernels.cuda.compile import CompiledKernel, Descriptor, KernelRequest

COUNTERS: Final = "counters"
# What kernels are promised of every address, and of integers where a request says so.
ALIGNMENT: Final = 16
# Pointers that the compiler appends to every function's parameters.
_HIDDEN_ARGUMENTS: Final = 2
_SWIZZLE_NBYTES: Final = (0, 32, 64, 128)
# Element types of tensor maps, by the driver's numbers.
_ELEMENTS: Final[Mapping[int, pb.DType]] = {
    0: pb.DTYPE_U8,
    4: pb.DTYPE_I32,
    6: pb.DTYPE_F16,
    7: pb.DTYPE_F32,
    9: pb.DTYPE_BF16,
}


@dataclass(frozen=True)
class Compiled:
    """A compiled request and the number of its function in the manifest."""

    kernel: CompiledKernel
    function: int


@dataclass(frozen=True)
class Lowered:
    """The kernels of every program, and the requests that they make, each once."""

    programs: tuple[tuple[ProgramRecorder, tuple[LoweredLaunches, ...]], ...]
    requests: Mapping[str, KernelRequest]


def lower_all(recorder: Recorder, kernels: Kernels) -> Lowered:
    """Lowers every launch. Raises ContractError where one has no kernel."""
    kernels = replace(kernels, retained=recorder.retained)
    cache: dict[object, object] = {}
    programs = []
    requests: dict[str, KernelRequest] = {}
    for program in recorder.programs:
        lowered = tuple(lower(program, kernels, cache))
        programs.append((program, lowered))
        for part in lowered:
            for kernel in part.kernels:
                requests.setdefault(kernel.request.identity, kernel.request)
    return Lowered(tuple(programs), requests)


def place(recorder: Recorder, lowered: Lowered, compiled: Mapping[str, Compiled]) -> None:
    """Gives every launch its nodes. `compiled` is by the identity of requests. Raises
    ContractError naming program, launch, kernel and argument for what doesn't fit."""
    counts = [
        argument.count
        for _, parts in lowered.programs
        for part in parts
        for kernel in part.kernels
        for argument in kernel.arguments.values()
        if isinstance(argument, Counters)
    ]
    counters = None
    if counts:
        # One for all: launches run one after the other, and each leaves zeros.
        counters = recorder.buffers.plain(
            COUNTERS, pb.BUFFER_CLASS_COUNTER, pb.DTYPE_I32, (max(counts),)
        )
    for program, parts in lowered.programs:
        scratch = _ScratchBuffers(recorder.buffers, program.message.name)
        for part in parts:
            _place_part(program, part, scratch, counters, compiled)


def _place_part(
    program: ProgramRecorder,
    part: LoweredLaunches,
    scratch: _ScratchBuffers,
    counters: BufferHandle | None,
    compiled: Mapping[str, Compiled],
) -> None:
    window = program.launches[part.first : part.last + 1]
    nodes = []
    used: dict[str, BufferHandle] = {}
    for kernel in part.kernels:
        name = kernel.request.function.__name__
        where = f"{program.message.name} launch {part.last} ({window[-1].kernel.name}, {name})"
        resolver = _Resolver(window, scratch, used, counters, where)
        nodes.append(resolver.node(kernel, compiled[kernel.request.identity]))
    for number in range(part.first, part.last):
        program.launches[number] = replace(program.launches[number], joined=True)
    program.launches[part.last] = replace(
        window[-1], nodes=tuple(nodes), scratch=tuple(used.values())
    )


class _ScratchBuffers:
    """Scratch of one program: launches that ask for the same share a buffer, which needs memory
    only while one of them is at work."""

    def __init__(self, buffers: BufferTable, program: str) -> None:
        self._buffers = buffers
        self._program = program
        self._known: dict[tuple[str, Scratch], BufferHandle] = {}

    def get(self, kernel: str, wanted: Scratch) -> BufferHandle:
        """The buffer of a role of a catalogue kernel."""
        known = self._known.get((kernel, wanted))
        if known is None:
            name = f"{self._program}/{kernel}.{wanted.role}.{len(self._known)}"
            known = self._buffers.plain(name, pb.BUFFER_CLASS_WORKSPACE, wanted.dtype, wanted.shape)
            self._known[kernel, wanted] = known
        return known


class _Resolver:
    """Resolves the arguments of kernels that do the work of `launches`."""

    def __init__(
        self,
        launches: Sequence[RecordedLaunch],
        scratch: _ScratchBuffers,
        used: dict[str, BufferHandle],
        counters: BufferHandle | None,
        where: str,
    ) -> None:
        self._launches = launches
        self._scratch = scratch
        self._used = used
        self._counters = counters
        self._where = where

    def node(self, kernel: CudaKernel, compiled: Compiled) -> pb.CudaNode:
        """The kernel's node."""
        kinds = kernel.request.arguments
        if set(kinds) != set(kernel.arguments):
            raise self._error("", f"is given {sorted(kernel.arguments)}, takes {sorted(kinds)}")
        descriptors = {found.name: found for found in compiled.kernel.descriptors}
        arguments = [
            self._argument(name, kind, kernel, descriptors.get(name))
            for name, kind in kinds.items()
        ]
        arguments += [pb.CudaArgument(int64=0)] * _HIDDEN_ARGUMENTS
        return pb.CudaNode(
            function=compiled.function,
            grid=kernel.grid,
            arguments=arguments,
            programmatic=kernel.programmatic,
        )

    def _argument(
        self, name: str, kind: str, kernel: CudaKernel, descriptor: Descriptor | None
    ) -> pb.CudaArgument:
        value = kernel.arguments[name]
        if isinstance(value, TensorMap):
            if descriptor is None:
                raise self._error(name, f"is a tensor map where the kernel takes {kind}")
            return self._tensor_map(name, value, descriptor)
        if kind.startswith("*"):
            return self._address(name, value)
        if isinstance(value, RowsOf):
            return self._row_count(name, kind, value)
        if isinstance(value, int | float):
            return self._number(name, kind, value, name in kernel.request.multiples_of_16)
        raise self._error(name, f"is {value} where the kernel takes {kind}")

    def _address(self, name: str, value: Argument) -> pb.CudaArgument:
        if isinstance(value, At):
            use, spec = self._operand(name, value.operand, value.launch)
            if use is None:
                return pb.CudaArgument(int64=0)
            return pb.CudaArgument(buffer=self._use(name, use, spec))
        if isinstance(value, Scratch):
            buffer = self._scratch.get(self._launches[-1].kernel.name, value)
            self._used[buffer.name] = buffer
            return pb.CudaArgument(buffer=_whole(buffer))
        if isinstance(value, Counters):
            assert self._counters is not None
            return pb.CudaArgument(buffer=_whole(self._counters))
        raise self._error(name, f"is {value} where the kernel takes an address")

    def _tensor_map(self, name: str, value: TensorMap, made: Descriptor) -> pb.CudaArgument:
        use, spec = self._operand(name, value.operand, value.launch)
        if use is None:
            raise self._error(name, f"maps the operand {value.operand}, which is absent")
        operand = self._use(name, use, spec)
        operand.access = contract.ACCESS_MODE_READ
        dtype = _ELEMENTS[made.element]
        row_nbytes = ELEMENT_NBYTES[dtype] * value.columns
        if row_nbytes % ALIGNMENT:
            multiple = ALIGNMENT // ELEMENT_NBYTES[dtype]
            raise self._error(
                name,
                f"{use.buffer.name} has rows of {value.columns} elements, no multiple of"
                f" {multiple}",
                "GPU kernels take hidden and intermediate sizes (config.json: hidden_size,"
                f" intermediate_size, heads x head_dim) that are multiples of {multiple}",
            )
        if (use.buffer.nbytes - use.buffer.first_byte) % row_nbytes:
            raise self._error(
                name, f"maps rows of {row_nbytes} bytes, of which {use.buffer.name} isn't made"
            )
        return pb.CudaArgument(
            tensor_map=pb.CudaTensorMap(
                buffer=operand,
                dtype=dtype,
                columns=value.columns,
                box=made.box,
                swizzle=_SWIZZLE_NBYTES[made.swizzle],
            )
        )

    def _row_count(self, name: str, kind: str, value: RowsOf) -> pb.CudaArgument:
        use, spec = self._operand(name, value.operand, value.launch)
        if kind != "i32":
            raise self._error(name, f"counts rows, where the kernel takes {kind}")
        if use is None:
            return pb.CudaArgument(int32=0)
        return pb.CudaArgument(
            row_count=pb.CudaRowCount(
                buffer=self._use(name, use, spec), row_nbytes=value.row_nbytes
            )
        )

    def _number(self, name: str, kind: str, value: int | float, divisible: bool) -> pb.CudaArgument:
        if kind == "fp32":
            return pb.CudaArgument(float32=value)
        if not isinstance(value, int) or (divisible and value % ALIGNMENT):
            raise self._error(name, f"is {value}, where the kernel takes a multiple of 16, {kind}")
        bits = {"i32": 32, "i64": 64}.get(kind)
        if bits is None or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise self._error(name, f"is {value}, where the kernel takes {kind}")
        return pb.CudaArgument(int32=value) if bits == 32 else pb.CudaArgument(int64=value)

    def _operand(
        self, name: str, operand: str, number: int
    ) -> tuple[OperandUse | None, OperandSpec]:
        launch = self._launches[number]
        for use, spec in zip(launch.uses, launch.kernel.operands, strict=True):
            if spec.name == operand:
                return use, spec
        raise self._error(name, f"names {operand}, no operand of {launch.kernel.name}")

    def _use(self, name: str, use: OperandUse, spec: OperandSpec) -> pb.Operand:
        first_byte = use.buffer.first_byte
        if first_byte % ALIGNMENT:
            raise self._error(
                name, f"begins at byte {first_byte} of {use.buffer.name}, no multiple of 16"
            )
        return pb.Operand(
            buffer=use.buffer.index + 1, byte_offset=first_byte, access=ACCESS[spec.access]
        )

    def _error(self, argument: str, what: str, remedy: str = "") -> ContractError:
        where = f"{self._where} argument {argument}" if argument else self._where
        return ContractError(what, where=where, remedy=remedy)


def _whole(buffer: BufferHandle) -> pb.Operand:
    return pb.Operand(buffer=buffer.index + 1, access=contract.ACCESS_MODE_READ_WRITE)
