"""Writes a bundle: a manifest with a program for each run of each trial, and the modules they need.

Needs Triton and no GPU. Every array of a run is a buffer in one workspace, apart from its
neighbours; programs use it in turn, so its size is that of the largest. Contents aren't stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from helios.kernels.catalogue import BY_NAME
from helios.schema import contract_pb2 as contract
from helios.schema import execution_pb2 as pb
from ignition.capture import nodes
from ignition.capture.handles import BufferHandle
from ignition.capture.liveness import OperandUse, RecordedLaunch
from ignition.capture.lowering import Kernels, LoweredLaunches, lower
from ignition.capture.program import ProgramRecorder
from ignition.capture.recorder import ACCESS, Recorder
from ignition.capture.target import TARGETS
from ignition.kernels.cuda import transport
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.compile_all import compile_all
from ignition.kernels.cuda.launches import ARCHITECTURES
from ignition.kernels.cuda.lowerings import FUSIONS, LOWERINGS
from ignition.preparation.cuda_modules import _Functions
from tests.gpu.every_trial import make
from tests.gpu.names import MANIFEST, MODULES, program_name
from tests.gpu.trials import Run

# Between an array's end and the next one's beginning, at least; the device aligns to 256.
MARGIN_NBYTES: Final = 512
_ALIGNMENT_NBYTES: Final = 256


@dataclass
class Bundle:
    """Programs in the making."""

    target: str = "cuda:sm_90"
    recorder: Recorder = field(init=False)
    requests: dict[str, KernelRequest] = field(default_factory=dict)
    # Which consecutive launches have become launches of a GPU.
    done: set[tuple[str, ...]] = field(default_factory=set)
    _lowered: list[tuple[ProgramRecorder, tuple[LoweredLaunches, ...]]] = field(
        default_factory=list
    )
    _cache: dict[object, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.recorder = Recorder(TARGETS[self.target], weight_resource="weights")
        for end in (transport.STAGE, transport.RECORD):
            self.requests[end.identity] = end

    def add(self, trial: str) -> None:
        """Records and lowers a trial's runs."""
        for name, run in make(trial).runs.items():
            self._add_run(program_name(trial, name), run)

    @property
    def missing(self) -> list[str]:
        """Kernels and fusions that no trial has."""
        every = {(name,) for name in LOWERINGS} | {fusion.kernels for fusion in FUSIONS}
        return sorted(" + ".join(kernels) for kernels in every - self.done)

    def write(self, folder: Path, advance: Callable[[int], None]) -> None:
        """Compiles and writes."""
        architecture = self.recorder.target.architecture
        compiled = compile_all(self.requests, architecture, advance)
        table = _Functions()
        numbered = {
            name: nodes.Compiled(kernel, table.add(kernel)) for name, kernel in compiled.items()
        }
        nodes.place(self.recorder, nodes.Lowered(tuple(self._lowered), self.requests), numbered)
        table.target.stage, table.target.record = (
            numbered[end.identity].function for end in (transport.STAGE, transport.RECORD)
        )
        (folder / MODULES).mkdir(parents=True, exist_ok=True)
        for old in (folder / MODULES).iterdir():
            old.unlink()
        for name, content in table.content.items():
            (folder / MODULES / name).write_bytes(content)
        (folder / MANIFEST).write_bytes(self._manifest(table.target).SerializeToString())

    def _add_run(self, name: str, run: Run) -> None:
        recorder = self.recorder
        program = recorder.program(
            name, contract.OPERATION_DECODE, batch_capacity=1, token_capacity=1,
            packed_token_capacity=1,
        )  # fmt: skip
        handles: dict[int, BufferHandle] = {}
        for number, case in enumerate(run.cases):
            spec = BY_NAME[case.kernel]
            uses: list[OperandUse | None] = []
            for operand in spec.operands:
                array = case.operands.get(operand.name)
                if array is None:
                    uses.append(None)
                    continue
                if id(array) not in handles:
                    handles[id(array)] = recorder.buffers.plain(
                        f"{name}/{number}.{operand.name}", pb.BUFFER_CLASS_WORKSPACE, pb.DTYPE_U8,
                        (array.nbytes,),
                    )  # fmt: skip
                uses.append(OperandUse(handles[id(array)], operand.access))
            program.launches.append(
                RecordedLaunch(
                    spec,
                    tuple(uses),
                    tuple(int(case.integers[key]) for key in spec.integers),
                    tuple(float(case.floats[key]) for key in spec.floats),
                )
            )
        # What is looked at must be written.
        kernels = Kernels(
            LOWERINGS,
            FUSIONS if run.fused else (),
            ARCHITECTURES[recorder.target.architecture],
            {handle.name for i, handle in handles.items() if i not in run.unread_ids},
        )
        parts = tuple(lower(program, kernels, self._cache))
        names = [case.kernel for case in run.cases]
        # Which launches belong together is decided by sizes; `missing` tells of what never did.
        self.done |= {tuple(names[part.first : part.last + 1]) for part in parts}
        if not run.early:
            parts = tuple(map(_one_after_the_other, parts))
        self._lowered.append((program, parts))
        for part in parts:
            for kernel in part.kernels:
                self.requests.setdefault(kernel.request.identity, kernel.request)

    def _manifest(self, target: pb.CudaTarget) -> pb.ExecutionManifest:
        recorder = self.recorder
        places, workspace_nbytes = _places([program.launches for program, _ in self._lowered])
        kernels = list(
            {launch.kernel.name: None for p, _ in self._lowered for launch in p.launches}
        )
        message = pb.ExecutionManifest(
            abi=recorder.target.abi,
            target=recorder.target.name,
            workspace_nbytes=workspace_nbytes,
            cuda=target,
        )
        for name in kernels:
            spec = BY_NAME[name]
            message.kernels.add(
                name=name,
                operands=[operand.name for operand in spec.operands],
                integers=spec.integers,
                floats=spec.floats,
            )
        for handle in recorder.buffers.handles:
            message.buffers.add(
                name=handle.name,
                buffer_class=handle.buffer_class,
                dtype=handle.dtype,
                packing=pb.PACKING_PLAIN,
                leading=pb.LEADING_COUNT_FIXED,
                shape=handle.shape,
                nbytes=handle.nbytes,
                offset=places.get(handle.name, 0),
            )
        for program, _ in self._lowered:
            made = message.programs.add()
            made.CopyFrom(program.message)
            made.launches.extend(_launch(launch, kernels) for launch in program.launches)
        return message


def _one_after_the_other(part: LoweredLaunches) -> LoweredLaunches:
    kernels = tuple(replace(kernel, programmatic=False) for kernel in part.kernels)
    return replace(part, kernels=kernels)


def _places(programs: Iterable[Sequence[RecordedLaunch]]) -> tuple[dict[str, int], int]:
    """Where each buffer lies in the workspace, and its size: each program begins anew, after a
    margin."""
    places: dict[str, int] = {}
    largest = 0
    for launches in programs:
        used: dict[str, int] = {}
        for launch in launches:
            used |= {use.buffer.name: use.buffer.nbytes for use in launch.uses if use is not None}
            used |= {buffer.name: buffer.nbytes for buffer in launch.scratch}
        at = MARGIN_NBYTES
        for name, nbytes in used.items():
            places[name] = at
            after = at + nbytes + MARGIN_NBYTES
            at = -(-after // _ALIGNMENT_NBYTES) * _ALIGNMENT_NBYTES
        largest = max(largest, at)
    return places, largest


def _launch(launch: RecordedLaunch, kernels: Sequence[str]) -> pb.Launch:
    operands = [
        pb.Operand()
        if use is None
        else pb.Operand(buffer=use.buffer.index + 1, access=ACCESS[spec.access])
        for use, spec in zip(launch.uses, launch.kernel.operands, strict=True)
    ]
    return pb.Launch(
        kernel=kernels.index(launch.kernel.name),
        operands=operands,
        integers=launch.integers,
        floats=launch.floats,
        nodes=launch.nodes,
    )
