"""Reads completion records: from a frame's COMPLETION buffers to `LaneCompletion`s.

Checks what makes a row readable at all (counts, token range, enumerations) and says so in the lane,
which fails that lane's request alone; whether the record answers the round that was submitted is
the scheduler's to decide. `ModelRuntime` is the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Operation
from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS, TOP_CAPACITY
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.manifest import Manifest, Program
from helios.runtime.rankings import RankingReader
from helios.runtime.rounds import Alternatives, DeviceFinish, LaneCompletion, LaneError

_FINISHES = {int(finish): finish for finish in DeviceFinish}
_ERRORS = {int(error): error for error in LaneError if error is not LaneError.IMPOSSIBLE}


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
        self._frames = tuple(
            (
                view(record.lanes, frame).view(np.int32).reshape(-1, COMPLETION_LANE_COLUMNS),
                view(record.tokens, frame).view(np.int32).reshape(-1, width),
                view(record.logprobs, frame).view(np.float32).reshape(-1, width),
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
        lanes, tokens, logprobs = self._frames[frame]
        width, vocabulary = self._width, self._vocabulary_tokens
        finishes, errors = _FINISHES, _ERRORS
        completions: list[LaneCompletion] = []
        scores: Iterable[tuple[float, ...]] = repeat(())
        if self.scored:
            assert len(lengths) == count
            scores = self._lane_scores(frame, lengths)
        for row, emitted, chosen, scored in zip(
            lanes[:count].tolist(),
            tokens[:count].tolist(),
            logprobs[:count].tolist(),
            scores,
            strict=False,
        ):
            slot, generation, kept, consumed, finish, cursor, reserved, _, _, error, _, _ = row
            fault = ""
            if finish not in finishes or error not in errors or not 0 <= kept <= width:
                fault = f"finish {finish}, error {error}, {kept} tokens"
            elif kept != width:
                del emitted[kept:], chosen[kept:]
            for token in emitted:
                if not 0 <= token < vocabulary:
                    fault = fault or f"token {token} is outside the vocabulary"
            if fault:
                lane = self._impossible(len(completions), slot, generation, fault)
                completions.append(lane)
                continue
            completions.append(
                LaneCompletion(
                    slot,
                    generation,
                    consumed,
                    tuple(emitted),
                    tuple(chosen),
                    finishes[finish],
                    errors[error],
                    cursor,
                    reserved,
                    scored,
                )
            )
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
