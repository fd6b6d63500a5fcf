"""What each value source means: how its values are read from a round's lanes.

Here is everything that is a number, or a few, for each round, lane or token: a table from
`ValueSource` to a `Source`. Rows of many elements are in `array_sources`. Readers run on the hot
path and return plain lists, or an array of what they compute themselves; they raise ValueError for
a lane that lacks what they read. `checks.bindings` resolves, `value_writers` calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import chain, starmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Operation, ValueSource
from helios.dataclass import dataclass
from helios.kernels.catalogue import TOP_CAPACITY
from helios.runtime.lanes import (
    ADMITTING,
    SPECULATIVE,
    TAKES_EMITTED,
    WITH_TOKENS,
    Columns,
    admission_of,
    extras_of,
)
from helios.runtime.rounds import LaneAdmission, LaneExtras, LaneWork
from helios.runtime.value_bounds import Bounds

_FEW: Final = 512  # tokens a lane, below which a list is made in less time than an array
NONE: Final = -1  # no row, no token, no target: never shifted by an offset
FILLER: Final = 0  # the token of a packed row that the device fills itself
_SEED_WORD: Final = (1 << 32) - 1
REAL_LIMIT: Final = float(np.finfo(np.float32).max)
_EVERY: Final = frozenset(Operation)

Read = Callable[[Sequence[LaneWork], Columns], Any]
Range = Callable[[Bounds], tuple[int, int]]


class Scope(Enum):
    """What a source has one value (or row of values) for."""

    ROUND = "round"
    LANE = "lane"
    TOKEN = "packed token"


@dataclass(frozen=True)
class Source:
    """A source's scope, reader and element kind. `columns` is the number of elements that a row
    has, 0 where the destination decides; `limits` gives the least and the largest value that a
    destination must be able to hold, None where only a round tells; `operations` are those whose
    lanes bring it; `optional` says that NONE is among its values."""

    scope: Scope
    read: Read
    limits: Range | None = None
    real: bool = False
    columns: int = 1
    operations: frozenset[Operation] = _EVERY
    optional: bool = False


def eos_rows(columns: int) -> Read:
    """Rows of `columns` end-of-sequence ids, unused places NONE. The reader raises ValueError for a
    lane with more ids than that."""

    def read(lanes: Sequence[LaneWork], _: Columns) -> list[list[int]]:
        rows = []
        for lane in lanes:
            ids = admission_of(lane).eos_ids
            if len(ids) > columns:
                raise ValueError(f"has {len(ids)} end-of-sequence ids, {columns} fit")
            rows.append([*ids, *[NONE] * (columns - len(ids))])
        return rows

    return read


def _seed_words(lanes: Sequence[LaneWork], _: Columns) -> list[tuple[int, int]]:
    seeds = [admission_of(lane).sampling.seed for lane in lanes]
    return [(seed & _SEED_WORD, seed >> 32) for seed in seeds]


def _positions(lanes: Sequence[LaneWork], columns: Columns) -> list[int] | NDArray[np.int64]:
    spans = [
        (lane.start, lane.start + length)
        for lane, length in zip(lanes, columns.lengths, strict=True)
    ]
    if columns.total < _FEW * len(lanes):
        return list(chain.from_iterable(starmap(range, spans)))
    return np.concatenate([np.arange(start, end) for start, end in spans])


def _prompt_tokens(lanes: Sequence[LaneWork], columns: Columns) -> Sequence[int]:
    if len(lanes) == 1 and lanes[0].tokens:
        return lanes[0].tokens
    tokens: list[int] = []
    for lane, length in zip(lanes, columns.lengths, strict=True):
        tokens.extend(lane.tokens or [FILLER] * length)
    return tokens


def _each_token(what: str, read: Callable[[LaneWork], Sequence[int]]) -> Read:
    """Values of a list that has one for each of the lane's tokens, or is empty: then NONE."""

    def values(lanes: Sequence[LaneWork], columns: Columns) -> list[int]:
        found: list[int] = []
        for lane, length in zip(lanes, columns.lengths, strict=True):
            given = read(lane)
            if len(given) not in (0, length):
                raise ValueError(f"has {len(given)} {what} for {length} tokens")
            found.extend(given or [NONE] * length)
        return found

    return values


def _pending_tokens(lanes: Sequence[LaneWork], _: Columns) -> list[int]:
    """A prompt's chunk consumes none."""
    for lane in lanes:
        if lane.pending_token < 0 and not lane.tokens:
            raise ValueError("has no pending token")
    return [lane.pending_token for lane in lanes]


def _snapshot_rows(read: Callable[[LaneWork], int]) -> Read:
    def values(lanes: Sequence[LaneWork], columns: Columns) -> list[int]:
        rows = columns.rows
        found = []
        for index in map(read, lanes):
            if not NONE <= index < rows.snapshots:
                raise ValueError(f"names snapshot {index}, there are {rows.snapshots}")
            found.append(NONE if index == NONE else rows.snapshot(index))
        return found

    return values


def _lane(
    read: Callable[[LaneWork], Any],
    limits: Range | None = None,
    operations: frozenset[Operation] = _EVERY,
) -> Source:
    return Source(
        Scope.LANE, lambda lanes, _: [read(lane) for lane in lanes], limits, operations=operations
    )


def _admitted(read: Callable[[LaneAdmission], int], limits: Range | None = None) -> Source:
    return _lane(lambda lane: read(admission_of(lane)), limits, ADMITTING)


def _real(read: Callable[[LaneAdmission], float]) -> Source:
    def values(lanes: Sequence[LaneWork], _: Columns) -> list[float]:
        found = [read(admission_of(lane)) for lane in lanes]
        for value in found:
            if math.isnan(value) or abs(value) > REAL_LIMIT:
                raise ValueError(f"has {value}, which is no 32-bit number")
        return found

    return Source(Scope.LANE, values, real=True, operations=ADMITTING)


def _proposed(
    read: Callable[[LaneExtras], int], limits: Range | None = None, *, optional: bool = False
) -> Source:
    return Source(
        Scope.LANE,
        lambda lanes, _: [read(extras_of(lane)) for lane in lanes],
        limits,
        operations=SPECULATIVE,
        optional=optional,
    )


def _state_row(bounds: Bounds) -> tuple[int, int]:
    return NONE, bounds.rows.count - 1


def _none_or_more(_: Bounds) -> tuple[int, int]:
    return NONE, 0


def _context(bounds: Bounds) -> tuple[int, int]:
    return 0, bounds.context_tokens


SOURCES: Final[dict[ValueSource, Source]] = {
    ValueSource.SLOT: Source(
        Scope.LANE, lambda _, columns: columns.slots, lambda b: (0, b.rows.request_slots - 1)
    ),
    ValueSource.GENERATION: Source(Scope.LANE, lambda _, columns: columns.generations),
    ValueSource.LIVE_ROW_COUNT: Source(
        Scope.ROUND, lambda lanes, _: len(lanes), lambda b: (1, b.active_lanes)
    ),
    ValueSource.LIVE_TOKEN_COUNT: Source(
        Scope.ROUND, lambda _, columns: columns.total, lambda b: (0, b.packed_tokens)
    ),
    ValueSource.QUERY_LENGTH: Source(
        Scope.LANE, lambda _, columns: columns.lengths, lambda b: (0, b.packed_tokens)
    ),
    ValueSource.SPECULATIVE_PREFIX_LIMIT: Source(
        Scope.LANE,
        lambda _, columns: columns.lengths,
        lambda b: (1, b.target_tokens),
        operations=SPECULATIVE,
    ),
    ValueSource.SAMPLING_DECISION: _lane(lambda lane: int(lane.sample), lambda _: (0, 1)),
    ValueSource.MIXED_PREFILL_ROW: Source(
        Scope.ROUND,
        lambda lanes, _: len(lanes) - 1,
        lambda b: (1, b.active_lanes - 1),
        operations=frozenset((Operation.MIXED,)),
    ),
    ValueSource.PROMPT_TOKEN: Source(
        Scope.TOKEN, _prompt_tokens, lambda b: (0, b.input_tokens - 1), operations=WITH_TOKENS
    ),
    ValueSource.SCORED_TARGET_TOKEN: Source(
        Scope.TOKEN,
        _each_token("targets", lambda lane: lane.targets),
        lambda b: (NONE, b.sampled_tokens - 1),
        operations=WITH_TOKENS,
        optional=True,
    ),
    ValueSource.SCORED_TOP_LOGPROBS: _lane(
        lambda lane: extras_of(lane).scored_top_logprobs, lambda _: (0, TOP_CAPACITY), WITH_TOKENS
    ),
    ValueSource.PENDING_TOKEN: Source(
        Scope.LANE,
        _pending_tokens,
        lambda b: (NONE, b.input_tokens - 1),
        operations=TAKES_EMITTED,
        optional=True,
    ),
    ValueSource.PROMPT_POSITION: Source(
        Scope.TOKEN, _positions, lambda b: (0, b.context_tokens - 1)
    ),
    ValueSource.IMAGE_FEATURE_INDEX: Source(
        Scope.TOKEN,
        _each_token("feature indices", lambda lane: extras_of(lane).feature_indices),
        _none_or_more,
        optional=True,
    ),
    ValueSource.IMAGE_CONTEXT_INDEX: Source(
        Scope.TOKEN,
        _each_token("context indices", lambda lane: extras_of(lane).context_indices),
        _none_or_more,
        optional=True,
    ),
    ValueSource.IMAGE_FEATURE_SLOT: Source(
        Scope.LANE,
        lambda lanes, _: [extras_of(lane).feature_slot for lane in lanes],
        lambda b: (NONE, max(b.feature_slots - 1, NONE)),
        optional=True,
    ),
    ValueSource.LIVE_STATE_ROW: Source(
        Scope.LANE,
        lambda _, columns: [columns.rows.live(slot) for slot in columns.slots],
        lambda b: (0, b.rows.live(b.rows.request_slots) - 1),
    ),
    ValueSource.RESTORE_SOURCE: Source(
        Scope.LANE, _snapshot_rows(lambda lane: lane.restore_row), _state_row, optional=True
    ),
    ValueSource.SNAPSHOT_DESTINATION: Source(
        Scope.LANE, _snapshot_rows(lambda lane: lane.snapshot_row), _state_row, optional=True
    ),
    ValueSource.CONSUMED_TOKENS: _lane(lambda lane: lane.start, _context),
    ValueSource.SEED: Source(
        Scope.LANE, _seed_words, lambda _: (0, _SEED_WORD), columns=2, operations=ADMITTING
    ),
    ValueSource.TEMPERATURE: _real(lambda a: a.sampling.temperature),
    ValueSource.TOP_K: _admitted(lambda a: a.sampling.top_k),
    ValueSource.TOP_P: _real(lambda a: a.sampling.top_p),
    ValueSource.MIN_P: _real(lambda a: a.sampling.min_p),
    ValueSource.REPETITION_PENALTY: _real(lambda a: a.sampling.repetition_penalty),
    ValueSource.PRESENCE_PENALTY: _real(lambda a: a.sampling.presence_penalty),
    ValueSource.FREQUENCY_PENALTY: _real(lambda a: a.sampling.frequency_penalty),
    ValueSource.MIN_TOKENS: _admitted(lambda a: a.sampling.min_tokens, _context),
    ValueSource.TOP_LOGPROBS: _admitted(
        lambda a: a.sampling.top_logprobs, lambda _: (0, TOP_CAPACITY)
    ),
    ValueSource.OUTPUT_LIMIT: _admitted(lambda a: a.output_limit, _context),
    ValueSource.EMITTED_TOKENS: _admitted(lambda a: a.emitted, _context),
    ValueSource.EOS_IDS: Source(
        Scope.LANE,
        eos_rows(0),
        lambda b: (NONE, b.sampled_tokens - 1),
        columns=0,
        operations=ADMITTING,
    ),
    ValueSource.PROPOSAL_COUNT: _proposed(
        lambda e: len(e.proposal.tokens) if e.proposal else 0, lambda b: (0, b.target_tokens)
    ),
    # Nobody's generation is 0.
    ValueSource.PROPOSAL_GENERATION: _proposed(
        lambda e: e.proposal.generation if e.proposal else 0
    ),
    ValueSource.PROPOSAL_ENDPOINT: _proposed(
        lambda e: e.proposal.endpoint if e.proposal else NONE,
        lambda b: (NONE, b.context_tokens),
        optional=True,
    ),
}
