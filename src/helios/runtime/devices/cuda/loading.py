"""From programs to executable graphs: what `CudaDevice.load` does once, before anything runs.

Resolves every node's arguments, makes the tables of what rounds move, and builds and uploads the
graphs. Modules are loaded as functions are met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from helios.phases import Phases
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.devices.cuda.arenas import Arenas, aligned
from helios.runtime.devices.cuda.arguments import ArgumentResolver, ResolvedNode
from helios.runtime.devices.cuda.functions import Functions, LoadedFunction, parameter_sizes
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.devices.cuda.graphs import GraphBuilder
from helios.runtime.devices.cuda.pinned import Frames
from helios.runtime.devices.cuda.transfers import (
    Moved,
    Rows,
    moved_buffers,
    record_rows,
    stage_rows,
)
from helios.runtime.launch_extents import check_launch_extents
from helios.runtime.manifest import BufferClass, CudaTarget, Program

# What `stage` and `record` take: addresses alone, in this order.
STAGE_SIZES: Final = (8,) * 3  # table, sequence, state
RECORD_SIZES: Final = (8,) * 5  # table, state, arrivals, times, completed
# Device memory between `stage` and `record`: the state's two words, then the arrivals.
_STATE_NBYTES: Final = 16
_WORDS_NBYTES: Final = 64


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A program's executable for each frame, and how many launches a round of it is."""

    executables: tuple[Any, ...]
    launches: int


class Loader:
    """Loads programs over memory that is taken. Nodes read the buffers `in_place` in the frames;
    `tables_nbytes` is the device memory that the tables take beside the plan's."""

    def __init__(
        self,
        gpu: Gpu,
        plan: MemoryPlan,
        arenas: Arenas,
        frames: Frames,
        functions: Functions,
        in_place: frozenset[int],
        phases: Phases,
    ) -> None:
        self._gpu = gpu
        self._plan = plan
        self._arenas = arenas
        self._frames = frames
        self._functions = functions
        self._in_place = in_place
        self._resolver = ArgumentResolver(gpu, plan, self._address, self._in_place)
        self._phases = phases
        self._builder = GraphBuilder(gpu, phases)
        self.tables_nbytes = 0

    def load(self, target: CudaTarget, programs: Sequence[Program]) -> list[LoadedProgram]:
        """Every program, and last one that moves nothing: for calibration. Raises ContractError
        naming the program and launch that this GPU can't run, and the operand that is too small for
        it: compiled functions believe their arguments."""
        with self._phases("extents"):
            check_launch_extents(programs, self._plan)
        stage = self._functions.get(target.stage, STAGE_SIZES, "cuda.stage")
        record = self._functions.get(target.record, RECORD_SIZES, "cuda.record")
        with self._phases("arguments"):
            named: list[tuple[str, list[ResolvedNode]]] = [
                (program.name, self._nodes(program)) for program in programs
            ]
        named.append(("of calibration", []))
        with self._phases("tables"):
            used = [moved_buffers(program, self._plan) for program in programs]
            used.append({kind: [] for kind in BufferClass if kind.framed})
            tables = self._tables(used)
        loaded: list[LoadedProgram] = []
        try:
            for number, (name, nodes) in enumerate(named):
                chain = [
                    self._stage(stage, tables.stages[number], tables.words),
                    *nodes,
                    self._record(record, tables.records[number], tables.words),
                ]
                loaded.append(LoadedProgram(self._builder.build(chain, name), len(chain)))
        except BaseException:
            for program in loaded:
                for executable in program.executables:
                    self._gpu.driver.cuGraphExecDestroy(executable)
            raise
        return loaded

    def _address(self, buffer: int, frame: int) -> int:
        """As kernels know it."""
        if buffer in self._in_place:
            return self._frames.address(buffer, frame)
        return self._arenas.addresses[buffer]

    def _nodes(self, program: Program) -> list[ResolvedNode]:
        nodes: list[ResolvedNode] = []
        for number, launch in enumerate(program.launches):
            for node in launch.nodes:
                sizes = parameter_sizes(node.arguments)
                where = f"program {program.name}, launch {number}"
                function = self._functions.get(node.function, sizes, where)
                nodes.append(
                    self._resolver.resolve(function, node.grid, node.arguments, node.programmatic)
                )
        return nodes

    def _stage(
        self, function: LoadedFunction, tables: Sequence[_Table], words: int
    ) -> ResolvedNode:
        sequences = self._frames.sequence_addresses
        values = [
            [table.address, sequence, words]
            for table, sequence in zip(tables, sequences, strict=True)
        ]
        return _transport_node(function, tables, values)

    def _record(
        self, function: LoadedFunction, tables: Sequence[_Table], words: int
    ) -> ResolvedNode:
        frames = self._frames
        arrivals = words + _STATE_NBYTES
        values = [
            [table.address, words, arrivals, frames.times_address, frames.completed_address]
            for table in tables
        ]
        return _transport_node(function, tables, values)

    def _tables(self, used: Sequence[Mapping[BufferClass, list[Moved]]]) -> _Tables:
        """Makes the tables of all programs and brings them to the GPU, equal ones once."""
        frames, copies = self._frames, self._arenas.addresses
        places: dict[bytes, int] = {}
        contents: list[Rows] = []
        at = _WORDS_NBYTES

        def place(rows: Rows) -> tuple[int, int]:
            nonlocal at
            key = rows.tobytes()
            if key not in places:
                places[key] = at
                contents.append(rows)
                at += aligned(rows.nbytes)
            return places[key], len(rows)

        stages: list[list[tuple[int, int]]] = []
        records: list[list[tuple[int, int]]] = []
        for kinds in used:
            inputs = kinds[BufferClass.INPUT]
            staged = [one for one in inputs if one.buffer not in self._in_place]
            completed = kinds[BufferClass.COMPLETION]
            for made, rows_of, moved in (
                (stages, stage_rows, staged),
                (records, record_rows, completed),
            ):
                made.append([place(rows_of(moved, frames, copies, f)) for f in range(FRAMES)])
        content = np.zeros(at, np.uint8)
        for rows, begin in zip(contents, places.values(), strict=True):
            content[begin : begin + rows.nbytes] = rows.view(np.uint8).reshape(-1)
        self.tables_nbytes = at
        address = self._arenas.take("tables", at)
        self._gpu.call(
            "copying tables",
            self._gpu.driver.cuMemcpyHtoDAsync,
            address,
            content.ctypes.data,
            at,
            self._gpu.copies,
        )
        self._gpu.finish_copies()

        def found(made: list[list[tuple[int, int]]]) -> list[tuple[_Table, ...]]:
            return [tuple(_Table(address + at, rows) for at, rows in one) for one in made]

        return _Tables(found(stages), found(records), address)


@dataclass(frozen=True, slots=True)
class _Table:
    address: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Tables:
    """By program, then by frame. `words` is the device memory between stage and record."""

    stages: list[tuple[_Table, ...]]
    records: list[tuple[_Table, ...]]
    words: int


def _transport_node(
    function: LoadedFunction, tables: Sequence[_Table], values: list[list[int]]
) -> ResolvedNode:
    hidden = [0] * function.hidden
    grid = (tables[0].rows, 1, 1)
    return ResolvedNode(function, grid, tuple(own + hidden for own in values), programmatic=True)
