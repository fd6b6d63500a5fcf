"""Records programs over declared buffers into an execution manifest.

The recorder is told what exists (weights, state, cache, inputs, completions) and hands out a
`ProgramRecorder` for each program. Nothing is computed here, and no model is known. `manifest()`
plans the workspace and returns the message that a core carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.errors import ContractError
from helios.kernels.catalogue import BY_NAME, KernelSpec
from helios.schema import contract_pb2 as contract
from helios.schema import execution_pb2 as pb
from ignition.capture import liveness, planner
from ignition.capture.buffers import BufferTable
from ignition.capture.handles import BufferHandle
from ignition.capture.liveness import RecordedLaunch
from ignition.capture.program import ProgramRecorder
from ignition.capture.target import Target
from ignition.capture.tuning import ProgramTuning

ACCESS: Final = {
    "r": contract.ACCESS_MODE_READ,
    "w": contract.ACCESS_MODE_WRITE,
    "rw": contract.ACCESS_MODE_READ_WRITE,
}


class Recorder:
    """One manifest in the making. Names of buffers, programs and destinations are unique. With
    `tuning`, projections take blockings that producers of the tuning catalog pick at start-up."""

    def __init__(self, target: Target, *, weight_resource: str, tuning: bool = False) -> None:
        self.target = target
        self._tuning = tuning
        self.buffers = BufferTable(weight_resource)
        self._retained: set[str] = set()
        self._programs: dict[str, ProgramRecorder] = {}
        self._producers: dict[str, ProgramRecorder] = {}
        self._destinations: dict[str, pb.TransportDestination] = {}
        self._completions: dict[str, pb.CompletionRecord] = {}

    # ------------------------------------------------------------ what exists

    def retained_workspace(self, name: str, dtype: pb.DType, shape: Sequence[int]) -> BufferHandle:
        """Declares scratch that all programs share and that keeps what a program last wrote into
        it until that program's end, so that it can be read after a round."""
        handle = self.buffers.plain(name, pb.BUFFER_CLASS_WORKSPACE, dtype, shape)
        self._retained.add(name)
        return handle

    def staged_input(self, destination: str, dtype: pb.DType, shape: Sequence[int]) -> BufferHandle:
        """Declares a destination and the INPUT buffer that it is staged in."""
        handle = self.buffers.plain(f"in.{destination}", pb.BUFFER_CLASS_INPUT, dtype, shape)
        self._add_destination(pb.TransportDestination(name=destination, staged_buffer=handle.name))
        return handle

    def delta_input(
        self, destination: str, target: BufferHandle, entries: int
    ) -> tuple[BufferHandle, BufferHandle, BufferHandle]:
        """Declares a destination whose values are scattered into `target`, at most `entries` a
        round; returns the count, index and value buffers."""
        count, index, value = (
            self.buffers.plain(
                f"in.{destination}.{part}", pb.BUFFER_CLASS_INPUT, pb.DTYPE_I32, (extent,)
            )
            for part, extent in (("count", 1), ("index", entries), ("value", entries))
        )
        delta = pb.DeltaTransport(
            target_buffer=target.name,
            count_buffer=count.name,
            index_buffer=index.name,
            value_buffer=value.name,
        )
        self._add_destination(pb.TransportDestination(name=destination, delta=delta))
        return count, index, value

    def completion(self, record: pb.CompletionRecord) -> None:
        """Declares a completion record over COMPLETION buffers."""
        self._completions[record.name] = record

    # ------------------------------------------------------------ programs

    def program(
        self,
        name: str,
        operation: contract.Operation,
        *,
        batch_capacity: int,
        token_capacity: int,
        packed_token_capacity: int,
        accesses: Sequence[contract.StateAccess] = (),
    ) -> ProgramRecorder:
        """Begins a program: B lanes, W target tokens a lane, P packed tokens."""
        if name in self._programs:
            raise ContractError("a program of this name exists already", where=name)
        message = pb.Program(
            name=name,
            operation=operation,
            batch_capacity=batch_capacity,
            token_capacity=token_capacity,
            packed_token_capacity=packed_token_capacity,
            accesses=accesses,
        )
        program = ProgramRecorder(self.buffers, message, self.target)
        if self._tuning:
            program.tuning = ProgramTuning(self.buffers, message, self._begin_producer)
        self._programs[name] = program
        return program

    def _begin_producer(self, name: str) -> ProgramRecorder:
        """Begins a program of the tuning catalog."""
        message = pb.Program(name=name, operation=contract.OPERATION_TUNE, batch_capacity=1)
        self._producers[name] = ProgramRecorder(self.buffers, message, self.target)
        return self._producers[name]

    @property
    def retained(self) -> frozenset[str]:
        """Scratch that is read after a program."""
        return frozenset(self._retained)

    @property
    def programs(self) -> tuple[ProgramRecorder, ...]:
        """All programs so far, and the tuning catalog's after them."""
        return (*self._programs.values(), *self._producers.values())

    def manifest(self, cuda: pb.CudaTarget | None = None) -> pb.ExecutionManifest:
        """Plans the workspace and returns the manifest; `cuda` has the functions that nodes name,
        on cuda targets."""
        programs, producers = self._programs.values(), self._producers.values()
        plan = planner.plan(
            liveness.workspace_tensors(
                [program.launches for program in (*programs, *producers)], self._retained
            )
        )
        kernels = _kernel_order([*programs, *producers])
        return pb.ExecutionManifest(
            abi=self.target.abi,
            target=self.target.name,
            kernels=[_kernel_use(BY_NAME[name]) for name in kernels],
            buffers=[_buffer_message(handle, plan) for handle in self.buffers.handles],
            programs=[self._finish(program, kernels) for program in programs],
            tuning=[self._finish(producer, kernels) for producer in producers],
            destinations=self._destinations.values(),
            completions=self._completions.values(),
            workspace_nbytes=plan.arena_nbytes,
            cuda=cuda,
        )

    def _add_destination(self, destination: pb.TransportDestination) -> None:
        self._destinations[destination.name] = destination

    def _finish(self, program: ProgramRecorder, kernels: Sequence[str]) -> pb.Program:
        touched = {
            use.buffer.name for launch in program.launches for use in launch.uses if use is not None
        }
        message = pb.Program()
        message.CopyFrom(program.message)
        message.launches.extend(_launch_message(launch, kernels) for launch in program.launches)
        message.inputs.extend(
            name
            for name, destination in self._destinations.items()
            if (destination.staged_buffer or destination.delta.count_buffer) in touched
        )
        written = [r.name for r in self._completions.values() if r.lanes in touched]
        if written:
            message.completion = written[0]
        return message


def _kernel_order(programs: Sequence[ProgramRecorder]) -> list[str]:
    """Kernels in the order of their first launch."""
    seen = {launch.kernel.name: None for program in programs for launch in program.launches}
    return list(seen)


def _kernel_use(spec: KernelSpec) -> pb.KernelUse:
    return pb.KernelUse(
        name=spec.name,
        operands=[operand.name for operand in spec.operands],
        integers=spec.integers,
        floats=spec.floats,
    )


def _buffer_message(handle: BufferHandle, plan: planner.Plan) -> pb.Buffer:
    return pb.Buffer(
        name=handle.name,
        buffer_class=handle.buffer_class,
        dtype=handle.dtype,
        packing=pb.Packing.Name(handle.packing),
        leading=handle.leading,
        shape=handle.shape,
        nbytes=handle.nbytes,
        offset=plan.offsets.get(handle.name, handle.offset),
        resource=handle.resource,
    )


def _launch_message(launch: RecordedLaunch, kernels: Sequence[str]) -> pb.Launch:
    return pb.Launch(
        kernel=kernels.index(launch.kernel.name),
        operands=[
            pb.Operand()
            if use is None
            else pb.Operand(
                buffer=use.buffer.index + 1,
                byte_offset=use.buffer.first_byte,
                access=ACCESS[spec.access],
            )
            for use, spec in zip(launch.uses, launch.kernel.operands, strict=True)
        ],
        integers=launch.integers,
        floats=launch.floats,
        nodes=launch.nodes,
    )
