"""What completed rounds have done, by program. `ModelWorker` counts, `statistics` reads."""

from __future__ import annotations

from collections import Counter

from helios.dataclass import dataclass
from helios.runtime.geometry import Geometry, ProgramInfo
from helios.scheduler.planned import PlannedRound
from helios.worker.messages import ProgramCounts


@dataclass(slots=True)
class _Counts:
    """Of one program; the rest follows from its extents."""

    rounds: int = 0
    lanes: int = 0
    tokens: int = 0


class RoundCounters:
    """Rounds completed, with the lanes and tokens that they had; every program is there from the
    beginning."""

    def __init__(self, geometry: Geometry) -> None:
        self._programs = geometry.programs
        self._counts = {program.index: _Counts() for program in geometry.programs}

    def count(self, planned: PlannedRound) -> None:
        """A round has completed."""
        counts = self._counts[planned.program.index]
        counts.rounds += 1
        counts.lanes += len(planned.residents)
        counts.tokens += planned.packed_tokens

    def by_program(self) -> dict[str, ProgramCounts]:
        """Counts by the program's name."""
        return {p.name: _of(p, self._counts[p.index]) for p in self._programs}

    @property
    def rounds(self) -> dict[str, int]:
        """Rounds by the operation's name."""
        return self._by_operation("rounds")

    @property
    def launches(self) -> dict[str, int]:
        """Kernel launches by the operation's name."""
        return self._by_operation("launches")

    def _by_operation(self, field: str) -> dict[str, int]:
        result: Counter[str] = Counter()
        for counts in self.by_program().values():
            result[counts.operation] += getattr(counts, field)
        return dict(sorted(result.items()))


def _of(program: ProgramInfo, counts: _Counts) -> ProgramCounts:
    packed = program.packed_token_capacity
    return ProgramCounts(
        operation=program.operation.name.lower(),
        rounds=counts.rounds,
        launches=counts.rounds * program.launches,
        lanes=counts.lanes,
        lanes_offered=counts.rounds * program.batch_capacity,
        tokens=counts.tokens if packed else 0,
        tokens_offered=counts.rounds * packed,
    )
