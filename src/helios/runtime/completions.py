"""Reads completion records: from a frame's COMPLETION buffers to `LaneCompletion`s.

Checks what makes a row readable at all (counts, token range, enumerations) and says so in the lane,
which fails that lane's request alone; whether the record answers the round that was submitted is
the scheduler's to decide. `ModelRuntime` is the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Operation
from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS, TOP_CAPACITY
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.manifest import Manifest, Program
from helios.runtime.rankings import RankingReader
from helios.runtime.rounds import (
    NO_RANKING,
    Alternatives,
    DeviceFinish,
    LaneCompletion,
    LaneError,
)

Value = TypeVar("Value")

_FINISHES = {int(finish): finish for finish in DeviceFinish}
_ERRORS = {int(error): error for error in LaneError if error is not LaneError.IMPOSSIBLE}


# Of a lane's columns those that are read: slot, generation, tokens kept and consumed, finish, draft
# cursor, the reserved one, error.
_COLUMNS: Final = (0, 1, 2, 3, 4, 5, 6, 9)
_FEW: Final = 4


# Makes one of all its fields; called once a lane and round.
_COMPLETION: Final[Callable[[Iterable[Any]], LaneCompletion]] = partial(
    tuple.__new__, LaneCompletion
)


class CompletionReader:
    """A program's record in both frames. `view(buffer, frame)` gives a COMPLETION buffer."""

    def __init__(
        self,
        program: Program,
        manifest: Manifest,
        plan: MemoryPlan,
        view: Callable[[int, int], NDArray[np.uint8]],
        vocabulary_tokens: int,
    ) -> None:
        record = manifest.completions[program.completion]
        width = plan.buffers[record.tokens].shape[1]
        self._name = program.name
        self._width = width
        self._vocabulary_tokens = vocabulary_tokens
        self.scored = program.operation is Operation.SCORED_PREFILL
        scores = record.scores if self.scored else None
        self._scores = (
            ()
            if scores is None
            else tuple(view(scores, frame).view(np.float32) for frame in range(FRAMES))
        )
        self._rankings = (
            RankingReader(record, view, vocabulary_tokens)
            if self.scored and record.score_ranks is not None
            else None
        )
        self._alternatives = (
            ()
            if record.top_tokens is None or record.top_logprobs is None
            else tuple(
                (
                    view(record.top_tokens, frame).view(np.int32).reshape(-1, TOP_CAPACITY),
                    view(record.top_logprobs, frame).view(np.float32).reshape(-1, TOP_CAPACITY),
                )
                for frame in range(FRAMES)
            )
        )
        # Views of Python's own: for the few values of most rounds they cost a fraction of numpy's.
        self._frames = tuple(
            (
                view(record.lanes, frame).data.cast("i"),
                view(record.tokens, frame).data.cast("i"),
                view(record.logprobs, frame).data.cast("f"),
            )
            for frame in range(FRAMES)
        )

    def read(
        self,
        frame: int,
        count: int,
        lengths: Sequence[int] = (),
        top_logprobs: Sequence[int] = (),
        scored_top_logprobs: Sequence[int] = (),
    ) -> tuple[LaneCompletion, ...]:
        """The first `count` lanes. A `scored` round's lanes have so many tokens each, and a score
        for each of them; `top_logprobs` says for each lane how many alternatives there are, if
        there are any, and `scored_top_logprobs` how many there are of what is scored. A lane whose
        row can't be true has the error IMPOSSIBLE, no tokens, and a `fault` that names it."""
        completions = self._few(frame, count) or self._lanes(frame, count)
        if self.scored:
            assert len(lengths) == count
            scores = self._lane_scores(frame, lengths)
            completions = [
                lane if lane.fault else lane._replace(scores=own)
                for lane, own in zip(completions, scores, strict=True)
            ]
        if any(top_logprobs):
            for number, wanted in enumerate(top_logprobs):
                if wanted and completions[number].tokens:
                    completions[number] = self._with_alternatives(
                        completions[number], frame, number, wanted
                    )
        if self.scored and (self._rankings is not None or any(scored_top_logprobs)):
            self._add_rankings(completions, frame, lengths, scored_top_logprobs)
        return tuple(completions)

    def _add_rankings(
        self,
        completions: list[LaneCompletion],
        frame: int,
        lengths: Sequence[int],
        wanted: Sequence[int],
    ) -> None:
        start = 0
        for lane, (answer, length) in enumerate(zip(completions, lengths, strict=True)):
            first, start = start, start + length
            if answer.fault:
                continue
            count = wanted[lane] if wanted else 0
            if self._rankings is None:
                if count:
                    what = "likeliest tokens are wanted of what is scored, and the record has none"
                    completions[lane] = self._impossible(lane, answer.slot, answer.generation, what)
                continue
            ranking, fault = self._rankings.read(frame, first, start, count)
            completions[lane] = (
                self._impossible(lane, answer.slot, answer.generation, fault)
                if fault
                else answer._replace(ranking=ranking)
            )

    def _few(self, frame: int, count: int) -> list[LaneCompletion]:
        """The same as `_lanes`, in less time for one lane or two; nothing where there are more, or
        one of them says more than its token."""
        if count > _FEW:
            return []
        columns, tokens, logprobs = self._frames[frame]
        width = self._width
        found = []
        for lane in range(count):
            slot, generation, kept, consumed, finish, cursor, reserved, _, _, error, _, _ = columns[
                lane * COMPLETION_LANE_COLUMNS : (lane + 1) * COMPLETION_LANE_COLUMNS
            ].tolist()
            token = tokens[lane]
            if kept != 1 or width != 1 or finish or error or token < 0:
                return []
            if token >= self._vocabulary_tokens:
                return []
            found.append(
                _COMPLETION(
                    (
                        slot,
                        generation,
                        consumed,
                        (token,),
                        (logprobs[lane],),
                        DeviceFinish.RUNNING,
                        LaneError.NONE,
                        cursor,
                        reserved,
                        (),
                        (),
                        "",
                        NO_RANKING,
                    )
                )
            )
        return found

    def _lanes(self, frame: int, count: int) -> list[LaneCompletion]:
        """The first `count` rows. There may be hundreds each round, so they are read as columns,
        and looked at one by one only where they aren't all alike."""
        columns, tokens, logprobs = self._frames[frame]
        width = self._width
        values = columns[: count * COMPLETION_LANE_COLUMNS].tolist()
        slots, generations, kept, consumed, finishes, cursors, reserved, errors = (
            values[column::COMPLETION_LANE_COLUMNS] for column in _COLUMNS
        )
        ids = tokens[: count * width].tolist()
        emitted = _rows(ids, width)
        chosen = _rows(logprobs[: count * width].tolist(), width)
        faults: dict[int, str] = {}
        whole = (
            kept == [width] * count
            and min(ids, default=0) >= 0
            and max(ids, default=0) < self._vocabulary_tokens
        )
        plain = not (any(finishes) or any(errors))
        if not (whole and (plain or _known(finishes, errors))):
            for lane, row in enumerate(zip(kept, finishes, errors, strict=True)):
                emitted[lane] = emitted[lane][: max(kept[lane], 0)]
                chosen[lane] = chosen[lane][: len(emitted[lane])]
                fault = self._row_fault(*row, emitted[lane])
                if fault:
                    faults[lane] = fault
        lanes = zip(
            slots,
            generations,
            consumed,
            emitted,
            chosen,
            map(_FINISHES.get, finishes),
            map(_ERRORS.get, errors),
            cursors,
            reserved,
            repeat(()),
            repeat(()),
            repeat(""),
            repeat(NO_RANKING),
        )
        completions = list(map(_COMPLETION, lanes))
        for lane, fault in faults.items():
            completions[lane] = self._impossible(lane, slots[lane], generations[lane], fault)
        return completions

    def _row_fault(self, kept: int, finish: int, error: int, tokens: Sequence[int]) -> str:
        """Why a row isn't readable, if it isn't."""
        if finish not in _FINISHES or error not in _ERRORS or not 0 <= kept <= self._width:
            return f"finish {finish}, error {error}, {kept} tokens"
        for token in tokens:
            if not 0 <= token < self._vocabulary_tokens:
                return f"token {token} is outside the vocabulary"
        return ""

    def _with_alternatives(
        self, answer: LaneCompletion, frame: int, lane: int, wanted: int
    ) -> LaneCompletion:
        """The lane with its likeliest tokens, fewer where there are no more."""
        if not self._alternatives:
            fault = "alternatives are wanted, and the record has none"
            return self._impossible(lane, answer.slot, answer.generation, fault)
        tokens, logprobs = self._alternatives[frame]
        ids = tokens[lane, :wanted].tolist()
        kept = ids.index(-1) if -1 in ids else len(ids)
        for token in ids[:kept]:
            if not 0 <= token < self._vocabulary_tokens:
                fault = f"alternative {token} is outside the vocabulary"
                return self._impossible(lane, answer.slot, answer.generation, fault)
        found = Alternatives(tuple(ids[:kept]), tuple(logprobs[lane, :kept].tolist()))
        return answer._replace(alternatives=(found,))

    def _lane_scores(self, frame: int, lengths: Sequence[int]) -> Iterator[tuple[float, ...]]:
        """Each lane's part of the packed scores."""
        values = iter(self._scores[frame][: sum(lengths)].tolist())
        return (tuple(islice(values, length)) for length in lengths)

    def _impossible(self, lane: int, slot: int, generation: int, what: str) -> LaneCompletion:
        return LaneCompletion(
            slot,
            generation,
            -1,
            (),
            (),
            DeviceFinish.RUNNING,
            LaneError.IMPOSSIBLE,
            -1,
            -1,
            fault=f"{self._name}, lane {lane}: the completion record can't be true: {what}",
        )


def _known(finishes: Sequence[int], errors: Sequence[int]) -> bool:
    """Whether all of them mean something."""
    return _FINISHES.keys() >= set(finishes) and _ERRORS.keys() >= set(errors)


def _rows(values: list[Value], width: int) -> list[tuple[Value, ...]]:
    """Values cut into rows of `width`."""
    return list(zip(*[iter(values)] * width, strict=True))
