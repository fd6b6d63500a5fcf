"""A model without a device: runs rounds as the programs' semantics say, in plain Python.

A sampled token is a hash of what the lane's memory shows (`fake_memory`: pages through its page
table, and its state row), of the seed and of nothing else; so a wrong page, row, position, slot or
seed changes tokens. Of a request whose sampling looks back it is a hash, too, of the tokens that
the device was told of when it took the request up, and of those sampled since. `alone` computes
what a request must get. It also refuses what a device couldn't detect: a page or row that is
written while somebody else uses it, and a round beyond its program.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nan

from helios.errors import ExecutionError
from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.runtime.rounds import (
    NO_RANKING,
    Alternatives,
    Completion,
    DeviceFinish,
    LaneCompletion,
    LaneError,
    LaneWork,
    Ranking,
    Round,
)
from helios.scheduler import Finish, Request
from tests.scheduler.fake_geometry import VOCABULARY, geometry
from tests.scheduler.fake_memory import PAGED, FakeMemory, Kind

__all__ = [
    "PAGED",
    "VOCABULARY",
    "FakeModel",
    "Kind",
    "alone",
    "geometry",
    "next_token",
    "rankings_alone",
    "scores_alone",
]

WITH_PROMPTS = (Operation.PREFILL, Operation.SCORED_PREFILL, Operation.MIXED)
ADMITTING = (Operation.INITIALIZE, Operation.RESTORE, Operation.RESUME)


def next_token(
    seen: Sequence[int | None], seed: int, counted: Sequence[int] = ()
) -> tuple[int, float]:
    """(token, logprob) that follows what is seen; `counted` are the tokens that are looked back
    at."""
    known = (list(seen), seed, sorted(counted)) if counted else (list(seen), seed)
    digest = hashlib.blake2b(repr(known).encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    return number % VOCABULARY, -(number % 1000) / 1000


def pick(number: int, mask: bytes | memoryview) -> int:
    """The token that a mask leaves where `number` would have been chosen."""
    bits = int.from_bytes(mask, "little")
    allowed = [token for token in range(VOCABULARY) if bits >> token & 1]
    return allowed[number % len(allowed)]


def score(context: Sequence[int | None], target: int) -> float:
    """The logprob of a given token after the context; nan for no token."""
    if target < 0:
        return nan
    digest = hashlib.blake2b(repr((list(context), target)).encode(), digest_size=8).digest()
    return -(int.from_bytes(digest, "little") % 1000) / 500


def likeliest(token: int, wanted: int) -> Alternatives:
    """The alternatives where `token` was sampled."""
    tokens = tuple((token + 2 * i + 1) % VOCABULARY for i in range(wanted))
    return Alternatives(tokens, tuple(-0.1 * (i + 1) for i in range(wanted)))


def standing(context: Sequence[int | None], target: int, wanted: int) -> tuple[int, Alternatives]:
    """The rank of a given token after the context, and the likeliest there; 0 and none for no
    token."""
    if target < 0:
        return 0, Alternatives((), ())
    digest = hashlib.blake2b(repr((target, list(context))).encode(), digest_size=8).digest()
    rank = 1 + int.from_bytes(digest, "little") % VOCABULARY
    others = [token for token in range(VOCABULARY) if token != target]
    others.insert(rank - 1, target)
    return rank, Alternatives(tuple(others[:wanted]), tuple(-0.1 * (i + 1) for i in range(wanted)))


def rankings_alone(prompt: Sequence[int], wanted: int) -> tuple[list[int], list[Alternatives]]:
    """Ranks of a prompt's tokens but the first, and the likeliest tokens in their places."""
    found = [standing(prompt[:i], prompt[i], wanted) for i in range(1, len(prompt))]
    return [rank for rank, _ in found], [there for _, there in found if wanted]


def scores_alone(prompt: Sequence[int]) -> list[float]:
    """The logprob of each token of a prompt but the first."""
    return [score(prompt[:i], prompt[i]) for i in range(1, len(prompt))]


def alone(request: Request, kind: Kind = PAGED) -> tuple[list[int], list[float], Finish]:
    """(tokens, logprobs, finish) of a request that nothing disturbs."""
    context = list(request.prompt)
    tokens: list[int] = []
    logprobs: list[float] = []
    while True:
        counted = context if request.sampling.looks_back else ()
        seen = kind.seen(context, context)
        token, logprob = next_token(seen, request.sampling.seed, counted)
        context.append(token)
        tokens.append(token)
        logprobs.append(logprob)
        if token in request.eos_ids:
            return tokens, logprobs, Finish.EOS
        if len(tokens) == request.output_limit:
            return tokens, logprobs, Finish.LIMIT


def default_cost_ns(program: ProgramInfo, lanes: int, tokens: int) -> int:
    """What a round takes: something for itself and something for each row."""
    return 1_000_000 + 50_000 * max(lanes, tokens)


@dataclass
class _State:
    generation: int = 0
    pending: int = -1
    consumed: int = 0
    emitted: int = 0
    output_limit: int = 0
    finished: DeviceFinish = DeviceFinish.RUNNING
    seed: int = 0
    eos_ids: tuple[int, ...] = ()
    top_logprobs: int = 0
    counted: list[int] = field(default_factory=list)
    table: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Submission:
    sequence: int
    program: ProgramInfo
    lanes: tuple[LaneWork, ...]


class FakeModel:
    """Has the worker's runtime interface. Rounds run in order, at the latest when waited for;
    `run_next` runs one earlier. `tamper` may change a completion before it is read; `breaks_at`
    is a sequence whose program fails. Time passes only while a round runs: `cost_ns` says how
    much, of a program, its lanes and its prompt tokens."""

    def __init__(self, model_geometry: Geometry, kind: Kind = PAGED) -> None:
        self.geometry = model_geometry
        self.memory = FakeMemory(model_geometry, kind)
        self.tamper: Callable[[Completion], Completion] = lambda completion: completion
        self.breaks_at: int | None = None
        self.cost_ns: Callable[[ProgramInfo, int, int], int] = default_cost_ns
        self.clock_ns = 1_000_000_000
        self.closed = False
        self.programs_run: list[str] = []
        self.lanes_submitted: list[int] = []
        self._states = [_State() for _ in range(model_geometry.request_slots)]
        self._queued: deque[_Submission] = deque()
        self._answers: dict[int, Completion] = {}
        self._unread: dict[int, _Submission] = {}
        self._sequence = 0

    # ------------------------------------------------------------ the runtime interface

    def can_submit(self) -> bool:
        return len(self._unread) < self.geometry.frames

    def pack_ahead(self, round_: Round) -> None:
        pass

    def submit(self, round_: Round) -> int:
        assert self.can_submit(), "submitted without a free frame"
        program = self.geometry.programs[round_.program]
        assert 0 < len(round_.lanes) <= program.batch_capacity
        packed = sum(len(lane.tokens) for lane in round_.lanes)
        assert (program.operation in WITH_PROMPTS) == bool(packed)
        if program.operation is Operation.MIXED:
            *decoding, prompt = round_.lanes
            assert decoding
            assert prompt.tokens
            assert not any(lane.tokens for lane in decoding)
            packed += len(decoding)
        assert packed <= program.packed_token_capacity or not packed
        for lane in round_.lanes:
            scored = program.operation is Operation.SCORED_PREFILL
            assert len(lane.targets) == (len(lane.tokens) if scored else 0)
            if program.host_fed:
                assert not self._in_flight(lane.slot), "fed before the token is known"
        if round_.top_logprobs:
            assert len(round_.top_logprobs) == len(round_.lanes)
        for number, lane in enumerate(round_.lanes):
            state = self._states[lane.slot]
            if program.operation not in ADMITTING and state.generation == lane.generation:
                wanted = round_.top_logprobs[number] if round_.top_logprobs else 0
                assert wanted == state.top_logprobs, "the record would be read wrongly"
        lanes = tuple(
            lane._replace(
                tokens=tuple(lane.tokens),
                pages=tuple(lane.pages),
                targets=tuple(lane.targets),
            )
            for lane in round_.lanes
        )
        assert len({lane.slot for lane in lanes}) == len(lanes), "a slot has two lanes"
        in_flight = [lane for unread in self._unread.values() for lane in unread.lanes]
        self.memory.check_sharing([*in_flight, *lanes])
        self._sequence += 1
        submission = _Submission(self._sequence, program, lanes)
        self._queued.append(submission)
        self._unread[self._sequence] = submission
        self.lanes_submitted.append(len(lanes))
        return self._sequence

    def _in_flight(self, slot: int) -> bool:
        return any(lane.slot == slot for s in self._unread.values() for lane in s.lanes)

    def completed(self, sequence: int) -> bool:
        return sequence in self._answers

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        while not self.completed(sequence):
            self.run_next()
        return True

    def read(self, sequence: int) -> Completion:
        del self._unread[sequence]
        if sequence == self.breaks_at:
            raise ExecutionError(
                "the program broke", where=f"sequence {sequence}", remedy="Mend it"
            )
        return self.tamper(self._answers.pop(sequence))

    def launches(self) -> int:
        return len(self.programs_run)

    def close(self) -> None:
        self.closed = True

    # ------------------------------------------------------------ the programs

    @property
    def queued(self) -> int:
        """Rounds submitted and not run."""
        return len(self._queued)

    def run_next(self) -> None:
        """Runs the oldest queued round."""
        submission = self._queued.popleft()
        self.programs_run.append(submission.program.name)
        operation = submission.program.operation
        answers: tuple[LaneCompletion, ...] = ()
        if operation in ADMITTING:
            for lane in submission.lanes:
                self._begin(lane, operation)
        elif operation is Operation.SNAPSHOT:
            for lane in submission.lanes:
                state = self._states[lane.slot]
                assert state.generation == lane.generation
                self.memory.save(lane, state.consumed)
        else:
            answers = tuple(self._step(lane, submission.program) for lane in submission.lanes)
        started_ns = self.clock_ns
        tokens = sum(len(lane.tokens) for lane in submission.lanes)
        self.clock_ns += self.cost_ns(submission.program, len(submission.lanes), tokens)
        self._answers[submission.sequence] = Completion(
            submission.sequence, answers, started_ns, self.clock_ns
        )

    def _begin(self, lane: LaneWork, operation: Operation) -> None:
        admission = lane.admission
        assert admission is not None
        refreshed = self._states[lane.slot]
        if operation is Operation.INITIALIZE and refreshed.generation == lane.generation:
            # Only what isn't in pages is written anew.
            assert self.geometry.history.starts_at_pages
            assert lane.start == refreshed.consumed, "a state is written where it doesn't stand"
            assert lane.restore_row < 0
        elif operation is Operation.INITIALIZE:
            self.memory.begin(lane)
        else:
            self.memory.restore(lane)
        assert (lane.pending_token >= 0) == (operation is Operation.RESUME)
        history = (lane.extras and lane.extras.history) or ()
        assert bool(history) == admission.sampling.looks_back
        self._states[lane.slot] = _State(
            generation=lane.generation,
            pending=lane.pending_token,
            consumed=lane.start,
            emitted=admission.emitted,
            output_limit=admission.output_limit,
            seed=admission.sampling.seed,
            eos_ids=admission.eos_ids,
            top_logprobs=admission.sampling.top_logprobs,
            counted=list(history),
        )

    def _step(self, lane: LaneWork, program: ProgramInfo) -> LaneCompletion:
        state = self._states[lane.slot]
        state.table[: len(lane.pages)] = lane.pages
        error = LaneError.NONE
        if state.generation != lane.generation:
            error = LaneError.STALE_GENERATION
        elif state.finished:
            error = LaneError.ALREADY_FINISHED
        if error:
            return self._answer(lane, state, (), (), error)
        if lane.tokens:
            fed, start = list(lane.tokens), lane.start
        else:
            fed = [lane.pending_token if program.host_fed else state.pending]
            start = state.consumed
        assert lane.start == state.consumed, "the host's endpoint isn't the device's"
        self.memory.consume((lane.slot, lane.generation), state.table, start, fed)
        state.consumed += len(fed)
        seen = self.memory.seen(lane.slot, state.table, state.consumed)
        scores = tuple(
            score(seen[:end], target) for end, target in enumerate(lane.targets, start + 1)
        )
        ranking = self._ranking(lane, seen)
        if not lane.sample:
            return self._answer(lane, state, (), (), error, scores, ranking)
        token, logprob = next_token(seen, state.seed, state.counted)
        mask = lane.extras.grammar_mask if lane.extras else None
        if mask is not None:
            token = pick(token, mask)
            logprob = score(seen, token)
        if state.counted:
            state.counted.append(token)
        state.pending = token
        state.emitted += 1
        if token in state.eos_ids:
            state.finished = DeviceFinish.EOS
        elif state.emitted == state.output_limit:
            state.finished = DeviceFinish.LIMIT
        return self._answer(lane, state, (token,), (logprob,), error, scores, ranking)

    def _ranking(self, lane: LaneWork, seen: Sequence[int | None]) -> Ranking:
        if not (lane.targets and self.geometry.scoring.alternatives):
            return Ranking()
        wanted = lane.extras.scored_top_logprobs if lane.extras else 0
        found = [
            standing(seen[:end], target, wanted)
            for end, target in enumerate(lane.targets, lane.start + 1)
        ]
        likeliest = tuple(there for _, there in found) if wanted else ()
        return Ranking(tuple(rank for rank, _ in found), likeliest)

    def _answer(
        self,
        lane: LaneWork,
        state: _State,
        tokens: tuple[int, ...],
        logprobs: tuple[float, ...],
        error: LaneError,
        scores: tuple[float, ...] = (),
        ranking: Ranking = NO_RANKING,
    ) -> LaneCompletion:
        return LaneCompletion(
            slot=lane.slot,
            generation=lane.generation,
            consumed=state.consumed,
            tokens=tokens,
            logprobs=logprobs,
            finish=state.finished,
            error=error,
            draft_cursor=-1,
            model_reserved=-1,
            scores=scores,
            ranking=ranking,
            alternatives=tuple(likeliest(t, state.top_logprobs) for t in tokens)
            if state.top_logprobs
            else (),
        )
