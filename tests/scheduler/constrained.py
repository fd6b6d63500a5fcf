"""Requests that follow a grammar, over the fake model: what may come is a function of what came.

The driver gives masks with rounds and tokens that must come to the scheduler, as the worker does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from helios.runtime.geometry import Operation
from helios.runtime.rounds import LaneExtras, Round
from helios.scheduler import Finish, Request, SchedulerOptions
from helios.scheduler.planned import PlannedRound
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_geometry import VOCABULARY
from tests.scheduler.fake_model import FakeModel, geometry, next_token, pick, score
from tests.scheduler.histories import PAGES

Force = Callable[[int, int], bool]  # of a request's id and how many tokens must come


def allowed(output: Sequence[int]) -> tuple[int, ...]:
    """What may come behind an output: for some stretches one token alone."""
    if len(output) % 9 in (1, 2, 4, 5, 6, 7):
        return ((sum(output) * 5 + len(output)) % VOCABULARY,)
    first = sum(output) + 3
    return tuple(sorted({(first + 4 * i) % VOCABULARY for i in range(3 + first % 4)}))


def mask_of(tokens: Sequence[int]) -> bytes:
    return sum(1 << token for token in tokens).to_bytes(4 * -(-VOCABULARY // 32), "little")


def forced(output: Sequence[int], eos_ids: Sequence[int]) -> list[int]:
    """The tokens that must come next."""
    found: list[int] = []
    while len(may := allowed([*output, *found])) == 1 and may[0] not in eos_ids:
        found += may
    return found


def constrained(request_id: int, prompt: int = 5, limit: int = 9, **options: object) -> Request:
    return replace(request(request_id, prompt, limit, **options), constrained=True)  # type: ignore[arg-type]


def constrained_alone(one: Request) -> tuple[list[int], list[float], Finish]:
    """As `alone`, of a request whose tokens are all sampled, one by one."""
    context, tokens, logprobs = list(one.prompt), list[int](), list[float]()
    while True:
        counted = context if one.sampling.looks_back else ()
        number, _ = next_token(context, one.sampling.seed, counted)
        token = pick(number, mask_of(allowed(tokens)))
        logprobs.append(score(context, token))
        tokens.append(token)
        context.append(token)
        if token in one.eos_ids:
            return tokens, logprobs, Finish.EOS
        if len(tokens) == one.output_limit:
            return tokens, logprobs, Finish.LIMIT


class GrammarDriver(Driver):
    """Asks `forces` whether a request is given the tokens that must come, where it can be. The most
    rounds that were in flight with a constrained one are `most_in_flight`."""

    def __init__(
        self,
        model: FakeModel | None = None,
        options: SchedulerOptions | None = None,
        *,
        forces: Force = lambda request_id, count: True,
    ) -> None:
        super().__init__(model or forcing_model(), options)
        self.forces = forces
        self.most_in_flight = 0
        self.times_forced = 0

    def submitted(self, planned: PlannedRound) -> Round:
        lanes = []
        for resident, lane in zip(planned.residents, planned.round.lanes, strict=True):
            one = resident.progress.request
            if one.constrained and lane.sample:
                output = resident.progress.tokens[len(one.prompt) :]
                extras = lane.extras or LaneExtras()
                mask = mask_of(allowed(output))
                lane = lane._replace(extras=replace(extras, grammar_mask=mask))
            if one.constrained and planned.program.operation is not Operation.SNAPSHOT:
                self.most_in_flight = max(self.most_in_flight, len(self.sequences) + 1)
            lanes.append(lane)
        return planned.round._replace(lanes=tuple(lanes))

    def complete(self) -> None:
        before = {request_id: len(got.tokens) for request_id, got in self.got.items()}
        residents = [r.progress for r in self.in_flight[0].residents]
        super().complete()
        self.scheduler.proceed()
        for progress in residents:
            one, got = progress.request, self.got[progress.request.request_id]
            if not one.constrained or got.ended or len(got.tokens) == before[one.request_id]:
                continue
            must = forced(got.tokens, one.eos_ids)
            must = must[: self.scheduler.forcing.room(one.request_id)]
            if must and self.forces(one.request_id, len(must)):
                self.scheduler.forcing.force(one.request_id, must)
                self.times_forced += 1
                self.check()


def forcing_model(**capacities: object) -> FakeModel:
    """A model that can be given tokens; capacities as for `geometry`."""
    shape = {"scored": ((8, 4), (16, 4)), "history": PAGES.rules, "pages": 40, **capacities}
    return FakeModel(geometry(**shape))  # type: ignore[arg-type]
