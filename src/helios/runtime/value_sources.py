"""What each value source means: how its values are read from a round's lanes.

A table from `ValueSource` to a reader; sources that no captured program of a supported operation
can be fed from a round are absent and so refused by `packing`, the only caller. Readers run on
the hot path and return plain lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any, Final

from helios.contract.enums import Operation, ValueSource
from helios.runtime.rounds import LaneAdmission, LaneWork
from helios.runtime.state_rows import StateRows

SEED_WORD: Final = (1 << 32) - 1
UNUSED_EOS: Final = -1
NONE: Final = -1  # no row, no token, no target: never shifted by an offset
FILLER: Final = 0  # the token of a packed row that the device fills itself


class Columns:
    """What several readers need of a round, computed once: each lane's slot and query length."""

    __slots__ = ("lengths", "rows", "slots", "total")

    def __init__(self, slots: list[int], lengths: list[int], rows: StateRows) -> None:
        self.slots = slots
        self.lengths = lengths
        self.total = sum(lengths)
        self.rows = rows


Read = Callable[[Sequence[LaneWork], Columns], Any]


class Scope(Enum):
    """What a source has one value (or row of values) for."""

    ROUND = "round"
    LANE = "lane"
    TOKEN = "packed token"


@dataclass(frozen=True)
class Source:
    """A source's scope, element kind and reader. `columns` is the number of elements that a row
    has, 0 where the destination decides; `admission` says that lanes must carry one; `optional`
    that NONE is among its values."""

    scope: Scope
    read: Read
    real: bool = False
    columns: int = 1
    admission: bool = False
    optional: bool = False


# Operations that move state and consume no tokens.
_CONSUMES_NOTHING: Final = frozenset(
    (Operation.INITIALIZE, Operation.RESTORE, Operation.RESUME, Operation.SNAPSHOT)
)


def query_lengths(operation: Operation, lanes: Sequence[LaneWork]) -> list[int]:
    """Tokens that each lane consumes in a round of `operation`. In a MIXED round a lane without
    tokens decodes one."""
    if operation is Operation.DECODE:
        return [1] * len(lanes)
    if operation in _CONSUMES_NOTHING:
        return [0] * len(lanes)
    if operation is Operation.MIXED:
        return [len(lane.tokens) or 1 for lane in lanes]
    return [len(lane.tokens) for lane in lanes]


def admission_of(lane: LaneWork) -> LaneAdmission:
    """The lane's admission; the packer has refused rounds that lack one."""
    assert lane.admission is not None
    return lane.admission


def eos_rows(columns: int) -> Read:
    """Rows of `columns` end-of-sequence ids, unused places -1. The reader raises ValueError for a
    lane with more ids than that."""

    def read(lanes: Sequence[LaneWork], _: Columns) -> list[list[int]]:
        rows = []
        for lane in lanes:
            ids = admission_of(lane).eos_ids
            if len(ids) > columns:
                raise ValueError(f"{len(ids)} end-of-sequence ids, {columns} at most")
            rows.append([*ids, *[UNUSED_EOS] * (columns - len(ids))])
        return rows

    return read


def _seed_words(lanes: Sequence[LaneWork], _: Columns) -> list[tuple[int, int]]:
    seeds = [admission_of(lane).sampling.seed for lane in lanes]
    return [(seed & SEED_WORD, seed >> 32) for seed in seeds]


def _positions(lanes: Sequence[LaneWork], columns: Columns) -> list[int]:
    spans = (
        range(lane.start, lane.start + length)
        for lane, length in zip(lanes, columns.lengths, strict=True)
    )
    return list(chain.from_iterable(spans))


def _prompt_tokens(lanes: Sequence[LaneWork], columns: Columns) -> list[int]:
    tokens: list[int] = []
    for lane, length in zip(lanes, columns.lengths, strict=True):
        tokens.extend(lane.tokens or [FILLER] * length)
    return tokens


def _targets(lanes: Sequence[LaneWork], columns: Columns) -> list[int]:
    targets: list[int] = []
    for lane, length in zip(lanes, columns.lengths, strict=True):
        if len(lane.targets) not in (0, length):
            raise ValueError(f"{len(lane.targets)} targets for {length} tokens")
        targets.extend(lane.targets or [NONE] * length)
    return targets


def _pending_tokens(lanes: Sequence[LaneWork], _: Columns) -> list[int]:
    """A prompt's chunk consumes none."""
    for lane in lanes:
        if lane.pending_token < 0 and not lane.tokens:
            raise ValueError("a lane has no pending token")
    return [lane.pending_token for lane in lanes]


def _snapshot_row(index: int, rows: StateRows) -> int:
    if index == NONE:
        return NONE
    if not 0 <= index < rows.snapshots:
        raise ValueError(f"snapshot {index} is none of {rows.snapshots}")
    return rows.snapshot(index)


def _restore_sources(lanes: Sequence[LaneWork], columns: Columns) -> list[int]:
    return [_snapshot_row(lane.restore_row, columns.rows) for lane in lanes]


def _snapshot_destinations(lanes: Sequence[LaneWork], columns: Columns) -> list[int]:
    return [_snapshot_row(lane.snapshot_row, columns.rows) for lane in lanes]


def _lane(read: Callable[[LaneWork], Any]) -> Source:
    return Source(Scope.LANE, lambda lanes, _: [read(lane) for lane in lanes])


def _admission(read: Callable[[LaneAdmission], Any], *, real: bool = False) -> Source:
    return Source(
        Scope.LANE,
        lambda lanes, _: [read(admission_of(lane)) for lane in lanes],
        real=real,
        admission=True,
    )


SOURCES: Final[dict[ValueSource, Source]] = {
    ValueSource.SLOT: Source(Scope.LANE, lambda _, columns: columns.slots),
    ValueSource.GENERATION: Source(
        Scope.LANE, lambda lanes, _: [lane.generation for lane in lanes]
    ),
    ValueSource.LIVE_ROW_COUNT: Source(Scope.ROUND, lambda lanes, _: len(lanes)),
    ValueSource.LIVE_TOKEN_COUNT: Source(Scope.ROUND, lambda _, columns: columns.total),
    ValueSource.QUERY_LENGTH: Source(Scope.LANE, lambda _, columns: columns.lengths),
    ValueSource.SAMPLING_DECISION: _lane(lambda lane: int(lane.sample)),
    ValueSource.MIXED_PREFILL_ROW: Source(Scope.ROUND, lambda lanes, _: len(lanes) - 1),
    ValueSource.PROMPT_TOKEN: Source(Scope.TOKEN, _prompt_tokens),
    ValueSource.SCORED_TARGET_TOKEN: Source(Scope.TOKEN, _targets, optional=True),
    ValueSource.PENDING_TOKEN: Source(Scope.LANE, _pending_tokens, optional=True),
    ValueSource.PROMPT_POSITION: Source(Scope.TOKEN, _positions),
    ValueSource.LIVE_STATE_ROW: Source(
        Scope.LANE, lambda _, columns: [columns.rows.live(slot) for slot in columns.slots]
    ),
    ValueSource.RESTORE_SOURCE: Source(Scope.LANE, _restore_sources, optional=True),
    ValueSource.SNAPSHOT_DESTINATION: Source(Scope.LANE, _snapshot_destinations, optional=True),
    ValueSource.CONSUMED_TOKENS: _lane(lambda lane: lane.start),
    ValueSource.SEED: Source(Scope.LANE, _seed_words, columns=2, admission=True),
    ValueSource.TEMPERATURE: _admission(lambda a: a.sampling.temperature, real=True),
    ValueSource.TOP_K: _admission(lambda a: a.sampling.top_k),
    ValueSource.TOP_P: _admission(lambda a: a.sampling.top_p, real=True),
    ValueSource.MIN_P: _admission(lambda a: a.sampling.min_p, real=True),
    ValueSource.OUTPUT_LIMIT: _admission(lambda a: a.output_limit),
    ValueSource.EMITTED_TOKENS: _admission(lambda a: a.emitted),
    ValueSource.EOS_IDS: Source(Scope.LANE, eos_rows(0), columns=0, admission=True),
}
