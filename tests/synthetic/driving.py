"""A scheduler over a real runtime with a synthetic model, driven as the worker drives it."""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.runtime.capacities import Capacities
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import SamplingParameters
from helios.scheduler import (
    Event,
    Finish,
    Request,
    RequestFailed,
    Scheduler,
    SchedulerOptions,
    TokensEmitted,
)
from tests.synthetic.device import SyntheticDevice
from tests.synthetic.histories import History, expected
from tests.synthetic.model import ROW_WORDS, SyntheticModel


@dataclass
class Got:
    """What a request has received."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    reused: int = 0


def few_pages(history: History, pages: int, snapshots: int = 2) -> Capacities:
    """Capacities with so many pages and snapshots."""
    words = sum(SyntheticModel(history).planes().values())
    saved = sum(SyntheticModel(history).planes()[plane] for plane in history.saved_planes)
    row = 8 * (saved + (ROW_WORDS if history.row_state else 0))
    kept = snapshots if row else 0
    return Capacities(cache_nbytes=8 * words * pages + row * kept, snapshot_rows=kept or None)


class Serving:
    """Loads a history's model; `submit`, `turn`, `drain`; `check` holds answers against
    `expected`."""

    def __init__(
        self,
        history: History,
        *,
        capacities: Capacities | None = None,
        options: SchedulerOptions | None = None,
    ) -> None:
        self.history = history
        self.device = SyntheticDevice(history)
        model = SyntheticModel(history)
        self.runtime = ModelRuntime.from_parts(
            model.contract,
            model.manifest,
            model.weights(),
            device=self.device,
            capacities=capacities,
        )
        self.scheduler = Scheduler(self.runtime.geometry, options)
        self.requests: dict[int, Request] = {}
        self.got: dict[int, Got] = {}
        self.programs: list[str] = []
        self._sequences: list[int] = []

    def submit(
        self,
        prompt: tuple[int, ...],
        limit: int,
        *,
        seed: int = 1,
        eos_ids: tuple[int, ...] = (),
        boundaries: tuple[int, ...] = (),
    ) -> int:
        """A request with the next id."""
        number = len(self.requests) + 1
        request = Request(
            number, prompt, limit, SamplingParameters(seed=seed), eos_ids, boundaries=boundaries
        )
        self.scheduler.submit(request)
        self.requests[number] = request
        self.got[number] = Got()
        self.scheduler.check_books()
        return number

    def cancel(self, number: int) -> None:
        """Cancels a request wherever it is."""
        self._take(self.scheduler.cancel(number))

    def launch(self) -> bool:
        """Plans and submits one round, if one can go on."""
        if not self.scheduler.can_plan():
            return False
        planned = self.scheduler.plan()
        self.scheduler.check_books()
        if planned is None:
            return False
        sequence = self.runtime.submit(planned.round)
        self.scheduler.begin(planned, sequence)
        self.scheduler.check_books()
        self.programs.append(planned.program.name)
        self._sequences.append(sequence)
        return True

    def complete(self) -> None:
        """Waits for the oldest round and takes what came of it."""
        sequence = self._sequences.pop(0)
        self.runtime.wait(sequence, 1000)
        self._take(self.scheduler.complete(self.runtime.read(sequence)))
        self.scheduler.settle()
        self.scheduler.check_books()

    @property
    def rounds_in_flight(self) -> int:
        """Rounds submitted and not completed."""
        return len(self._sequences)

    def turn(self) -> None:
        """One turn of the worker's loop; fails where nothing can go on."""
        while self.launch():
            pass
        assert self._sequences, "requests are live and no round can be planned"
        self.complete()

    def drain(self) -> None:
        """Turns until nothing is left."""
        while not self.scheduler.idle or self._sequences:
            self.turn()

    def check(self, number: int) -> None:
        """The request got what its tokens alone make of it: all of it, or as much as there is."""
        request, got = self.requests[number], self.got[number]
        answer = expected(
            self.history,
            request.prompt,
            request.output_limit,
            request.sampling.seed,
            request.eos_ids,
        )
        count = len(got.tokens)
        if got.finish in (Finish.EOS, Finish.LIMIT):
            count = len(answer.tokens)
        assert got.tokens == answer.tokens[:count], f"request {number}"

    def _take(self, events: list[Event]) -> None:
        for event in events:
            assert not isinstance(event, RequestFailed), event.message
            if isinstance(event, TokensEmitted):
                got = self.got[event.request_id]
                got.tokens += event.tokens
                got.logprobs += event.logprobs
                got.finish = event.finish
                got.reused = event.reused_prompt_tokens
        self.scheduler.check_books()
