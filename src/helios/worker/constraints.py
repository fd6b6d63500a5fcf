"""Requests that are kept to a grammar: their matchers follow their tokens, and masks say what may
come next before the round that samples it.

A matcher belongs to a request, not to its slot, so preemption changes nothing for it. Where a
grammar leaves no choice, the tokens that follow are known beforehand (`ahead`): a mask of one bit
each, or, where they are enough, all of them given to the scheduler at once (`Forcing`). Which of
both happens changes no token.

The loop calls `advance` between a completion and the next plan; no round with a constrained request
is in flight then.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from helios.dataclass import dataclass
from helios.frontend.grammar.faults import GrammarFault
from helios.runtime.array_rows import WORD
from helios.runtime.rounds import LaneExtras, LaneWork, Round
from helios.scheduler import Event, Scheduler, TokensEmitted
from helios.scheduler.planned import PlannedRound
from helios.worker.grammars import GrammarCounters, Prepared
from helios.worker.matcher_faults import Problem, problem_of
from helios.worker.messages import Submit

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

# As few tokens as are worth a round of their own, and one more for each other request that waits
# for it meanwhile (docs/frontend.md has the measurements).
FORCED_TOKENS: Final = 2
_MASK_THREADS: Final = 8
_NO_EXTRAS: Final = LaneExtras()


@dataclass(slots=True)
class _Constraint:
    """A request's grammar: its matcher stands behind all tokens that the request has, and `row`
    holds the mask of what may follow, beside the request's own, `allowed`. `ahead` must follow, in
    order. The last `fed` tokens that the request was given weren't sampled, and the matcher has
    them already. `taken` counts the tokens that it has."""

    matcher: LLMatcher
    row: int
    eos_ids: frozenset[int]
    allowed: NDArray[np.uint32] | None
    ahead: deque[int] = field(default_factory=deque)
    fed: int = 0
    taken: int = 0


class UnfollowedError(Exception):
    """A grammar can't be followed any further."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.what)


class Constraints:
    """The constrained requests of a worker, from `begin` to `forget`. Of the loop's thread."""

    def __init__(self, scheduler: Scheduler, counters: GrammarCounters) -> None:
        self._scheduler = scheduler
        self._counters = counters
        self._words = -(-scheduler.geometry.vocabulary_tokens // 32)
        self._by_id: dict[int, _Constraint] = {}
        self._masks: NDArray[np.uint32] = np.zeros((0, self._words), WORD)
        self._free: list[int] = []
        self._executor: LLExecutor | None = None

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._by_id)

    def begin(self, request: Submit, prepared: Prepared) -> Problem | None:
        """The request's tokens follow the grammar from now on; says why they can't."""
        if not self._free:
            self._grow()
        eos_ids, allowed = frozenset(request.eos_ids), request.sampling.allowed_tokens
        mask = None if allowed is None else mask_of(allowed, self._words)
        one = _Constraint(prepared.matcher, self._free.pop(), eos_ids, mask)
        if allowed is None:
            one.ahead.extend(_before(prepared.forced, eos_ids))
        self._by_id[request.request_id] = one
        if one.ahead:
            self._allow(one.row, one.ahead[0])
        else:
            # It may be longer by a word, which is no token's.
            self._masks[one.row] = np.frombuffer(prepared.mask, WORD, self._words)
        return self._nothing_left(one)

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        one = self._by_id.pop(request_id, None)
        if one is not None:
            self._free.append(one.row)

    def _grow(self) -> None:
        rows = len(self._masks)
        more = max(rows, 8)
        self._masks = np.concatenate((self._masks, np.zeros((more, self._words), WORD)))
        self._free += range(rows + more - 1, rows - 1, -1)

    # ------------------------------------------------------------ after a completion

    def advance(self, events: Sequence[Event]) -> dict[int, Problem]:
        """Follows the tokens that came, and makes the masks of what may follow. The ids of
        requests that can't go on, with what is wrong."""
        if not self._by_id:
            return {}
        began = time.monotonic_ns()
        failed: dict[int, Problem] = {}
        choosing: list[_Constraint] = []
        followed: list[tuple[int, _Constraint]] = []
        for event in events:
            one = self._by_id.get(event.request_id)
            if one is None or not isinstance(event, TokensEmitted) or not event.tokens:
                continue
            try:
                self._follow(one, event.tokens)
                self._look_ahead(event.request_id, one)
            except UnfollowedError as error:
                failed[event.request_id] = error.problem
                continue
            self._counters.masks += 1
            followed.append((event.request_id, one))
            if one.ahead:
                self._allow(one.row, one.ahead[0])
            else:
                choosing.append(one)
        self._fill(choosing)
        for request_id, one in followed:
            problem = self._nothing_left(one)
            if problem is not None:
                failed[request_id] = problem
        self._counters.mask_ns += time.monotonic_ns() - began
        return failed

    def _follow(self, one: _Constraint, tokens: Sequence[int]) -> None:
        """The matcher takes the tokens that it doesn't have yet. Raises UnfollowedError where it
        can't."""
        taken, one.fed = one.fed, 0
        for token in tokens[taken:]:
            if one.ahead and one.ahead.popleft() != token:
                what = f"token {token} came, which its grammar excludes"
                raise UnfollowedError(Problem(GrammarFault.NONE, what))
            if not one.matcher.consume_token(token):
                raise UnfollowedError(_problem(one))
            one.taken += 1

    def _look_ahead(self, request_id: int, one: _Constraint) -> None:
        """Finds what must follow, and gives the request as much of it as is worth it."""
        if not one.ahead:
            one.ahead.extend(self._forced(one))
        forcing = self._scheduler.forcing
        if len(one.ahead) < FORCED_TOKENS:
            return
        room = forcing.room(request_id)
        if min(room, len(one.ahead)) < FORCED_TOKENS + forcing.others(request_id):
            return
        given: list[int] = []
        while one.ahead and len(given) < room:
            part = [one.ahead.popleft() for _ in range(min(room - len(given), len(one.ahead)))]
            if not one.matcher.consume_tokens(part):
                raise UnfollowedError(_problem(one))
            one.taken += len(part)
            given += part
            if not one.ahead:
                one.ahead.extend(self._forced(one))
        one.fed = len(given)
        forcing.force(request_id, given)

    def _forced(self, one: _Constraint) -> Sequence[int]:
        """What the grammar leaves no choice about; an end is sampled, there may be several. Where
        the client says which tokens may come, another way to write the same text may be one of
        them, so nothing is known beforehand."""
        if one.allowed is not None or one.matcher.is_stopped():
            return ()
        return _before(one.matcher.compute_ff_tokens(), one.eos_ids)

    def _nothing_left(self, one: _Constraint) -> Problem | None:
        """What is wrong where no token may follow."""
        if not one.ahead and one.matcher.is_error():
            return _problem(one)
        if one.allowed is not None and not (self._masks[one.row] & one.allowed).any():
            return Problem(
                GrammarFault.EXCLUDED,
                f"after {one.taken} tokens it has none of those that its grammar allows",
            )
        return None

    # ------------------------------------------------------------ masks

    def _allow(self, row: int, token: int) -> None:
        """Nothing but the token may follow."""
        mask = self._masks[row]
        mask.fill(0)
        mask[token >> 5] = 1 << (token & 31)

    def _fill(self, choosing: Sequence[_Constraint]) -> None:
        """Asks the matchers, without the GIL, on several threads where they are several."""
        nbytes = self._words * WORD.itemsize
        if len(choosing) == 1:
            (one,) = choosing
            one.matcher.unsafe_compute_mask_ptr(self._masks[one.row].ctypes.data, nbytes)
        elif choosing:
            if self._executor is None:
                from llguidance import LLExecutor

                self._executor = LLExecutor(min(os.cpu_count() or 1, _MASK_THREADS))
            self._executor.unsafe_compute_mask_ptr(
                [(one.matcher, one.row) for one in choosing],
                self._masks.ctypes.data,
                nbytes,
                len(self._masks),
            )

    def masked(self, planned: PlannedRound) -> Round:
        """The planned round with the masks of its lanes, which are read when it is packed."""
        made = planned.round
        if not self._by_id:
            return made
        lanes = [
            self._with_mask(lane, resident.progress.request.request_id)
            for lane, resident in zip(made.lanes, planned.residents, strict=True)
        ]
        return made._replace(lanes=tuple(lanes))

    def _with_mask(self, lane: LaneWork, request_id: int) -> LaneWork:
        one = self._by_id.get(request_id)
        if one is None or not lane.sample:
            return lane
        mask = memoryview(self._masks[one.row]).cast("B")
        return lane._replace(extras=replace(lane.extras or _NO_EXTRAS, grammar_mask=mask))


def mask_of(tokens: Sequence[int], words: int) -> NDArray[np.uint32]:
    """A bit for each token that is among these."""
    bits = np.zeros(words * 32, np.bool_)
    bits[list(tokens)] = True
    return np.packbits(bits, bitorder="little").view(WORD)


def _before(tokens: Sequence[int], ends: frozenset[int]) -> Sequence[int]:
    """Those before the first end of the sequence."""
    count = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:count]


def _problem(one: _Constraint) -> Problem:
    """What is wrong where the matcher has an error."""
    return problem_of(one.matcher.get_error(), one.taken)
