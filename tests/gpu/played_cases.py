"""`tests.gpu.run_cases` over the stand-in driver, with numpy for a GPU and faults to be found.

In place of a round's kernels the reference leaves its results in the device's memory. PLAYED_FAULT
names a fault and the beginning of the run's program that has it: `value:norm tiny`.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from helios.kernels.catalogue import BY_NAME
from helios.kernels.operand_types import FORMAT, OPERAND_TYPES, OUT_FORMAT
from tests.gpu.executing import Executor
from tests.gpu.expectations import expected
from tests.gpu.placing import Placed
from tests.gpu.run_cases import main
from tests.gpu.trials import Run
from tests.native.cuda_cases import are_f16, values
from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT, to_bf16, to_f16


class PlayedExecutor(Executor):
    """Lets numpy play every run."""

    def _execute_run(
        self, program: int, run: Run, placed: Placed
    ) -> tuple[list[str], dict[int, Array]]:
        self._playing = run, placed
        return super()._execute_run(program, run, placed)

    def _launch(self, program: int, frame: int) -> None:
        super()._launch(program, frame)
        run, placed = self._playing
        results = expected(run.cases)
        for case in run.cases:
            for operand in BY_NAME[case.kernel].operands:
                array = case.operands.get(operand.name)
                if array is not None and id(array) in results:
                    content = _encoded(case, operand.name, array, results[id(array)])
                    self._write(placed.arrays[id(array)][1].begin, content)
        fault, _, name = os.environ.get("PLAYED_FAULT", "").partition(":")
        names = [known for known, (number, _) in self._programs.items() if number == program]
        if fault and names[0].startswith(name):
            self._spoil(fault, run, placed, frame)

    def _write(self, at: int, content: Array) -> None:
        host = np.ascontiguousarray(content).view(np.uint8).reshape(-1)
        self.device._copy(host, self._workspace + at, to_gpu=True)

    def _spoil(self, fault: str, run: Run, placed: Placed, frame: int) -> None:
        written = placed.arrays[next(iter(sorted(placed.written)))][1]
        read = placed.arrays[id(run.cases[-1].operands["rows"])][1]
        wrong = np.array([77], np.uint8)
        if fault == "value" or (fault == "once" and frame == 1):
            self._write(written.end - 1, wrong)
        elif fault == "margin":
            self._write(written.end + 3, wrong)
        elif fault == "operand":
            self._write(read.begin + 1, wrong)
        elif fault == "counter":
            assert self.device._arenas is not None
            self.device._copy(wrong, self.device._arenas.addresses[self._counters[0]], to_gpu=True)
        elif fault == "exit":
            os._exit(9)


def _encoded(case: Case, name: str, before: Array, exact: Array) -> Array:
    """Values as the operand holds them; what is as it was keeps its bits."""
    kind = OPERAND_TYPES[case.kernel][name]
    form = case.integers[kind] if kind in (FORMAT, OUT_FORMAT) else None
    if form == BF16_FORMAT:
        bits = to_bf16(exact)
    elif are_f16(case, name, before):
        bits = to_f16(exact)
    else:
        return exact
    old = values(case, name, before)
    left = (old == exact) | (np.isnan(old) & np.isnan(exact))
    return np.where(left, np.ascontiguousarray(before).view(np.uint16).reshape(-1), bits)


if __name__ == "__main__":
    sys.exit(main("tests.gpu.played_cases", PlayedExecutor))
