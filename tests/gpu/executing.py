"""Runs trials on a GPU, one after the other, in one process.

Each run runs twice, over different margins and scratch, on both frames: what it leaves must be the
same, numpy's, and nowhere else. Then rows that are to have the same bits are compared. Results go
to a file line by line, so that whoever started this process knows where it ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from helios.errors import ExecutionError
from helios.runtime.device import DeviceOptions, MemoryPlan, PlannedBuffer
from helios.runtime.devices.cuda.device import CudaDevice
from helios.runtime.manifest import BufferClass, Manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import execution_pb2
from tests.gpu.every_trial import make
from tests.gpu.expectations import differences
from tests.gpu.names import MANIFEST, MODULES, program_name
from tests.gpu.placing import Bytes, Placed, place
from tests.gpu.trials import Run, Trial
from tests.native.launches import Array

_WAIT_MS: Final = 3_600_000  # the device's own limit comes first
# Of what the second time lies in margins and scratch.
_FILLING_NBYTES: Final = 1 << 20
LOST: Final = 3


def read_manifest(bundle: Path) -> Manifest:
    """The programs of a bundle."""
    message = execution_pb2.ExecutionManifest()
    message.ParseFromString((bundle / MANIFEST).read_bytes())
    return decode_manifest(message)


class Executor:
    """The programs of some trials, loaded. `dry` runs them and looks at nothing."""

    device_type: type[CudaDevice] = CudaDevice

    def __init__(
        self, bundle: Path, trials: Sequence[str], options: DeviceOptions, *, dry: bool
    ) -> None:
        manifest = read_manifest(bundle)
        self._dry = dry
        self._buffers = manifest.buffers
        wanted = tuple(f"{trial}: " for trial in trials)
        programs = [p for p in manifest.programs if p.name.startswith(wanted)]
        self._programs = {program.name: (i, program) for i, program in enumerate(programs)}
        self._filling: Bytes = np.random.default_rng(0).integers(0, 256, _FILLING_NBYTES, np.uint8)
        modules = {path.name: path.read_bytes() for path in (bundle / MODULES).iterdir()}
        self.device = self.device_type(manifest.target, options, manifest.cuda, modules)
        planned = tuple(PlannedBuffer(b, b.shape, b.nbytes) for b in manifest.buffers)
        self.device.allocate(MemoryPlan(planned, {}, manifest.workspace_nbytes), {})
        self.device.load(programs)
        self._sequence = 0
        self._counters = [
            index
            for index, buffer in enumerate(manifest.buffers)
            if buffer.buffer_class is BufferClass.COUNTER
        ]
        assert self.device._arenas is not None
        workspace = next(
            index
            for index, buffer in enumerate(manifest.buffers)
            if buffer.buffer_class is BufferClass.WORKSPACE
        )
        self._workspace = (
            self.device._arenas.addresses[workspace] - manifest.buffers[workspace].offset
        )

    def execute(self, name: str) -> list[str]:
        """What is wrong with a trial. Raises ExecutionError where the GPU fails."""
        trial = make(name)
        left: dict[str, dict[int, Array]] = {}
        wrong: list[str] = []
        for run_name, run in trial.runs.items():
            number, program = self._programs[program_name(name, run_name)]
            placed = place(run, program, self._buffers)
            found, after = self._execute_run(number, run, placed)
            wrong += [f"{run_name}: {said}" for said in found]
            left[run_name] = after
        if not self._dry:
            wrong += unequal(trial, left)
        return wrong

    def _execute_run(
        self, program: int, run: Run, placed: Placed
    ) -> tuple[list[str], dict[int, Array]]:
        wrong: list[str] = []
        first: dict[int, Array] = {}
        for frame, filling in enumerate((None, self._filling)):
            before = placed.image(filling)
            after = self._round(program, frame, before)
            if self._dry:
                continue
            said = placed.strayed(before, after)
            wrong += [said] if said else []
            wrong += self._counted()
            left = placed.results(after)
            if frame == 0:
                first = left
                if run.reference:
                    wrong += differences(run, left)
            else:
                wrong += [
                    f"{placed.arrays[n][1].name} differs when other things lie around the arrays"
                    for n in placed.written - run.unread_ids
                    if left[n].tobytes() != first[n].tobytes()
                ]
        return wrong, first

    def _round(self, program: int, frame: int, before: Bytes) -> Bytes:
        self._bring(before)
        self._launch(program, frame)
        return before if self._dry else self._fetch(before)

    def _bring(self, before: Bytes) -> None:
        self.device._copy(before, self._workspace, to_gpu=True)

    def _fetch(self, before: Bytes) -> Bytes:
        """What became of the workspace."""
        after = np.empty_like(before)
        self.device._copy(after, self._workspace, to_gpu=False)
        return after

    def _launch(self, program: int, frame: int) -> None:
        self._sequence += 1
        self.device.submit(program, frame, self._sequence)
        if not self.device.wait(self._sequence, _WAIT_MS):
            raise ExecutionError("doesn't end", where=f"round {self._sequence}")

    def _counted(self) -> list[str]:
        """Counters that aren't zero, which are cleared for the next run."""
        wrong = []
        for index in self._counters:
            left = self.device.read_buffer(index, 0)
            if left.any():
                at = np.flatnonzero(left)
                wrong.append(f"{at.size} counters aren't zero, the first is {at[0]}")
                assert self.device._arenas is not None
                zeros = np.zeros(left.nbytes, np.uint8)
                self.device._copy(zeros, self.device._arenas.addresses[index], to_gpu=True)
        return wrong


def unequal(trial: Trial, left: dict[str, dict[int, Array]]) -> list[str]:
    """Rows that don't have the bits of the same rows in another run."""
    wrong = []
    for same in trial.same:
        own = _operand(trial.runs[same.run], left[same.run], same.operand, same.launch)
        base = _operand(trial.runs[same.base], left[same.base], same.operand, same.launch)
        one = np.ascontiguousarray(own[same.index])
        other = np.ascontiguousarray(base[same.base_index])
        if one.tobytes() == other.tobytes():
            continue
        if one.shape != other.shape:
            raise ValueError(f"{same}: {one.shape} and {other.shape}")
        bits = (a.view(np.uint8).reshape(len(a), -1) for a in (one, other))
        rows = np.flatnonzero((next(bits) != next(bits)).any(axis=1))
        wrong.append(
            f"{same.operand} of {rows.size} rows of {len(one)} has other bits in {same.run!r} than"
            f" in {same.base!r}, the first is {rows[0]}"
        )
    return wrong


def _operand(run: Run, left: dict[int, Array], operand: str, launch: int) -> Array:
    return left[id(run.cases[launch].operands[operand])]


def execute_all(
    bundle: Path,
    trials: Sequence[str],
    results: Path,
    options: DeviceOptions,
    *,
    dry: bool,
    make_executor: Callable[..., Executor] = Executor,
) -> int:
    """Runs trials and appends a line for each to `results`: when it begins, and what came of it.
    Returns `LOST` where the GPU took nothing more, else 0."""
    with results.open("a", buffering=1) as lines:

        def note(**fields: Any) -> None:
            lines.write(json.dumps(fields) + "\n")

        began = time.perf_counter()
        executor = make_executor(bundle, trials, options, dry=dry)
        note(loaded=time.perf_counter() - began)
        for name in trials:
            note(begins=name)
            began = time.perf_counter()
            try:
                wrong = executor.execute(name)
            except ExecutionError as error:  # the device takes nothing more
                note(trial=name, wrong=[f"the GPU failed: {error}"], seconds=0.0, lost=True)
                return LOST
            except Exception as error:
                wrong = [f"{type(error).__name__}: {error}"]
            note(trial=name, wrong=wrong, seconds=round(time.perf_counter() - began, 3))
        executor.device.close()
    return 0
