"""One request at a time on a ModelRuntime, by hand: slots, pages and snapshots are the test's.

For tests of the programs that save, restore, mix and score. The scheduler isn't involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from helios.runtime.geometry import Operation
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import (
    Alternatives,
    LaneAdmission,
    LaneCompletion,
    LaneExtras,
    LaneWork,
    SamplingParameters,
)
from tests.replaying import GENERATIONS, run_round, smallest

SEEDED = SamplingParameters(temperature=0.9, top_k=40, top_p=0.95, seed=77)
LIMIT = 1 << 20


@dataclass
class Told:
    """A request in a slot: what it was given and what it has said."""

    slot: int
    pages: tuple[int, ...]
    sampling: SamplingParameters = SEEDED
    generation: int = field(default_factory=lambda: next(GENERATIONS))
    consumed: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    likeliest: list[Alternatives] = field(default_factory=list)
    # What it is admitted with, where its sampling looks back.
    history: Sequence[int] | None = None

    def lane(
        self,
        tokens: Sequence[int] = (),
        *,
        sample: bool = False,
        targets: Sequence[int] = (),
        likeliest: int = 0,
    ) -> LaneWork:
        """Its lane in a round that consumes tokens."""
        return LaneWork(
            self.slot, self.generation, self.consumed, tuple(tokens), sample, self.pages,
            targets=tuple(targets), extras=LaneExtras(scored_top_logprobs=likeliest),
        )  # fmt: skip

    def heard(self, lane: LaneCompletion) -> None:
        """Takes what a round said of it."""
        assert (lane.slot, lane.generation) == (self.slot, self.generation)
        self.consumed = lane.consumed
        self.tokens += lane.tokens
        self.logprobs += lane.logprobs
        self.scores += lane.scores
        self.ranks += lane.ranking.ranks
        self.likeliest += lane.ranking.alternatives


class Teller:
    """Runs rounds of requests on a runtime."""

    def __init__(self, runtime: ModelRuntime) -> None:
        self.runtime = runtime

    def begin(self, *requests: Told) -> None:
        """INITIALIZE."""
        self._run(Operation.INITIALIZE, [_admitted(one, one.consumed) for one in requests])

    def prefill(self, request: Told, tokens: Sequence[int], *, sample: bool = True) -> None:
        """PREFILL of a chunk by itself."""
        lane = request.lane(tokens, sample=sample)
        request.heard(self._run(Operation.PREFILL, [lane], len(tokens))[0])

    def score(
        self,
        request: Told,
        tokens: Sequence[int],
        targets: Sequence[int],
        *,
        sample: bool = True,
        likeliest: int = 0,
    ) -> None:
        """SCORED_PREFILL of a chunk by itself."""
        lane = request.lane(tokens, sample=sample, targets=targets, likeliest=likeliest)
        request.heard(self._run(Operation.SCORED_PREFILL, [lane], len(tokens))[0])

    def decode(self, *requests: Told, steps: int = 1) -> None:
        """DECODE rounds of all of them."""
        for _ in range(steps):
            done = self._run(Operation.DECODE, [one.lane(sample=True) for one in requests])
            for one, lane in zip(requests, done, strict=True):
                one.heard(lane)

    def mix(
        self, decoding: Sequence[Told], request: Told, tokens: Sequence[int], *, sample: bool
    ) -> None:
        """One MIXED round."""
        lanes = [*(one.lane(sample=True) for one in decoding), request.lane(tokens, sample=sample)]
        done = self._run(Operation.MIXED, lanes, len(decoding) + len(tokens))
        for one, lane in zip((*decoding, request), done, strict=True):
            one.heard(lane)

    def snapshot(self, *saved: tuple[Told, int, int]) -> None:
        """One SNAPSHOT round: of each request the first so many tokens, into a row."""
        self._run(Operation.SNAPSHOT, [
            LaneWork(one.slot, one.generation, endpoint, (), False, one.pages, snapshot_row=row)
            for one, endpoint, row in saved
        ])  # fmt: skip

    def restore(self, *restored: tuple[Told, int, int]) -> None:
        """One RESTORE round: each request at an endpoint, from a row."""
        lanes = [_admitted(one, endpoint, restore_row=row) for one, endpoint, row in restored]
        self._run(Operation.RESTORE, lanes)
        for one, endpoint, _ in restored:
            one.consumed = endpoint

    def resume(
        self, request: Told, endpoint: int, row: int, pending: int, emitted: int = 0
    ) -> None:
        """RESUME from a row with a token to decode from."""
        lane = _admitted(request, endpoint, restore_row=row, pending_token=pending, emitted=emitted)
        self._run(Operation.RESUME, [lane])
        request.consumed = endpoint

    def _run(
        self, operation: Operation, lanes: Sequence[LaneWork], tokens: int = 1
    ) -> tuple[LaneCompletion, ...]:
        program = smallest(self.runtime.geometry, operation, len(lanes), tokens)
        return run_round(self.runtime, program, lanes).lanes


def _admitted(
    request: Told,
    start: int,
    *,
    emitted: int = 0,
    restore_row: int = -1,
    pending_token: int = -1,
) -> LaneWork:
    return LaneWork(
        request.slot,
        request.generation,
        start,
        (),
        False,
        request.pages,
        LaneAdmission(request.sampling, LIMIT, emitted, ()),
        restore_row=restore_row,
        pending_token=pending_token,
        extras=None if request.history is None else LaneExtras(history=request.history),
    )
