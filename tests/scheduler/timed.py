"""A driver that keeps time: when each request's tokens came, on the fake model's clock, and which
rounds ran while prompts and running outputs competed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.runtime.rounds import Round
from helios.scheduler import Event, SchedulerOptions, TokensEmitted
from helios.scheduler.requests import Phase
from tests.scheduler.driving import Driver
from tests.scheduler.fake_model import FakeModel

MS = 1_000_000
Cost = Callable[[ProgramInfo, int, int], int]

PROMPTS = (Operation.PREFILL, Operation.SCORED_PREFILL)


@dataclass(frozen=True)
class Contended:
    """A round planned while both prompts and running outputs waited."""

    program: ProgramInfo
    cost_ns: int


class TimedDriver(Driver):
    """`came_ns` holds the time of each token by request, `contended` the rounds for which there
    was a choice."""

    def __init__(
        self, shape: Geometry, cost_ns: Cost, options: SchedulerOptions | None = None
    ) -> None:
        super().__init__(_Model(shape, cost_ns), options)
        self.came_ns: defaultdict[int, list[int]] = defaultdict(list)
        self.contended: list[Contended] = []

    def take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, TokensEmitted) and event.tokens:
                self.came_ns[event.request_id].append(self.model.clock_ns)
        super().take(events)

    def launch(self) -> str | None:
        phases = {r.phase for r in self.scheduler._residency.residents}
        name = super().launch()
        if name is not None and phases >= {Phase.PREFILLING, Phase.DECODING}:
            model = self.model
            assert isinstance(model, _Model)
            self.contended.append(Contended(*model.last))
        return name

    def gaps_ms(self, request_id: int) -> list[float]:
        """Milliseconds between a request's tokens."""
        return [(b - a) / MS for a, b in pairwise(self.came_ns[request_id])]

    def share_of_prompts(self) -> float:
        """Of the time of contended rounds, what went to rounds of prompts alone."""
        spent = {True: 0, False: 0}
        for one in self.contended:
            spent[one.program.operation in PROMPTS] += one.cost_ns
        return spent[True] / sum(spent.values())


class _Model(FakeModel):
    """Remembers the round submitted last, and what it will cost."""

    def __init__(self, shape: Geometry, cost_ns: Cost) -> None:
        super().__init__(shape)
        self.cost_ns = cost_ns
        self.last: tuple[ProgramInfo, int] = (shape.programs[0], 0)

    def submit(self, round_: Round) -> int:
        program = self.geometry.programs[round_.program]
        tokens = sum(len(lane.tokens) for lane in round_.lanes)
        self.last = program, self.cost_ns(program, len(round_.lanes), tokens)
        return super().submit(round_)
