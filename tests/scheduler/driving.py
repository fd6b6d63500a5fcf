"""Drives a scheduler over a fake model, as the worker does, and gathers what requests got."""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.runtime.rounds import Alternatives, Round, SamplingParameters
from helios.scheduler import (
    Event,
    Finish,
    PromptScored,
    Request,
    RequestFailed,
    Scheduler,
    SchedulerOptions,
    TokensEmitted,
)
from helios.scheduler.cache import NO_PAGE
from helios.scheduler.planned import PlannedRound
from tests.scheduler.fake_memory import places_written
from tests.scheduler.fake_model import FakeModel, geometry
from tests.scheduler.fake_tier import FakeTier


def request(
    request_id: int,
    prompt: int | tuple[int, ...] = 5,
    limit: int = 4,
    *,
    eos_ids: tuple[int, ...] = (),
    seed: int | None = None,
    priority: int = 0,
    prefix_reuse: bool = True,
    sibling_of: int | None = None,
    boundaries: tuple[int, ...] = (),
    **sampling: float,
) -> Request:
    """A request; an int prompt is that many tokens that depend on the id."""
    if isinstance(prompt, int):
        prompt = tuple((7 * request_id + 3 * i) % 23 for i in range(prompt))
    parameters = SamplingParameters(seed=request_id if seed is None else seed, **sampling)  # type: ignore[arg-type]
    return Request(
        request_id, prompt, limit, parameters, eos_ids, priority, prefix_reuse=prefix_reuse,
        sibling_of=sibling_of, boundaries=boundaries,
    )  # fmt: skip


@dataclass
class Got:
    """What a request has received so far."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    scores: list[float] | None = None
    ranks: list[int] | None = None
    likeliest: list[Alternatives] | None = None
    finish: Finish | None = None
    failure: str | None = None
    reused: int = 0
    alternatives: list[Alternatives] = field(default_factory=list)

    @property
    def told(self) -> tuple[object, object, object]:
        """Scores, ranks and likeliest tokens of its prompt."""
        return self.scores, self.ranks, self.likeliest

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.failure is not None


class Driver:
    """A scheduler, its model and the answers by request id. Checks the books after every act. What
    completions leave to be settled is `at_once`, or else where the worker does it."""

    def __init__(
        self,
        model: FakeModel | None = None,
        options: SchedulerOptions | None = None,
        tier: FakeTier | None = None,
        *,
        at_once: bool = True,
    ) -> None:
        self.at_once = at_once
        self.model = model or FakeModel(geometry())
        self.tier = tier
        self.scheduler = Scheduler(self.model.geometry, options, tier)
        self.sequences: list[int] = []
        self.in_flight: list[PlannedRound] = []
        self.got: dict[int, Got] = {}

    def submit(self, *requests: Request) -> None:
        for one in requests:
            self.scheduler.submit(one)
            self.got[one.request_id] = Got()
            self.check()

    def cancel(self, request_id: int) -> None:
        self.take(self.scheduler.cancel(request_id))

    def launch(self) -> str | None:
        """Plans and submits one round; the program's name, or None where nothing can go on."""
        planned = self.scheduler.plan()
        self.check()
        if planned is None:
            return None
        for resident, lane in zip(planned.residents, planned.round.lanes, strict=True):
            for place in places_written(lane, self.scheduler.geometry.page_tokens):
                assert place in resident.private, "a shared page is written"
        sequence = self.model.submit(self.submitted(planned))
        self.scheduler.begin(planned, sequence)
        self.sequences.append(sequence)
        self.in_flight.append(planned)
        self.check()
        return planned.program.name

    def submitted(self, planned: PlannedRound) -> Round:
        """The round that the model gets."""
        return planned.round

    def complete(self) -> None:
        """Waits for the oldest round and completes it."""
        sequence = self.sequences.pop(0)
        self.in_flight.pop(0)
        self.model.wait(sequence, 1000)
        self.take(self.scheduler.complete(self.model.read(sequence)))
        if self.at_once:
            self.settle()

    def settle(self) -> None:
        """Does what completions have left."""
        self.scheduler.settle()
        self.check()

    def take(self, events: list[Event]) -> None:
        for event in events:
            got = self.got[event.request_id]
            assert not got.ended, f"an event after the last one: {event}"
            if isinstance(event, RequestFailed):
                got.failure = event.message
            elif isinstance(event, PromptScored):
                assert got.scores is None, "scored twice"
                assert not got.tokens, "scored after the first token"
                got.scores = list(event.logprobs)
                got.ranks = list(event.ranks)
                got.likeliest = list(event.alternatives)
            else:
                assert isinstance(event, TokensEmitted)
                got.tokens += event.tokens
                got.logprobs += event.logprobs
                got.finish = event.finish
                got.reused = event.reused_prompt_tokens
                got.alternatives += event.alternatives
        self.check()

    def check(self) -> None:
        """The books agree, and what is published is what it is published as."""
        self.scheduler.check_books()
        memory, names = self.model.memory, self.scheduler.cache.rules.names_endpoint
        for node in self.scheduler.cache.store.tree:
            if node.page != NO_PAGE:
                assert memory.read_page(node.page) == node.tokens
            for snapshot in node.snapshots:
                saved = memory.read_snapshot(snapshot.row).endpoint
                assert saved == snapshot.endpoint or (names and saved > snapshot.endpoint)

    def turn(self) -> list[str]:
        """One turn of the worker's loop; the programs that it launched."""
        launched: list[str] = []
        while self.scheduler.can_plan() and (name := self.launch()) is not None:
            launched.append(name)
        self.settle()
        if self.sequences:
            self.complete()
        elif self.tier is not None and any(not fetch.finished for fetch in self.tier.fetches):
            self.scheduler.wait_for_content(1000)
        else:
            assert self.scheduler.idle, "requests are live and no round can be planned"
        return launched

    def drain(self) -> list[str]:
        """Turns until nothing is left to do; the programs launched."""
        launched: list[str] = []
        while not self.scheduler.idle or self.sequences:
            launched += self.turn()
        return launched
