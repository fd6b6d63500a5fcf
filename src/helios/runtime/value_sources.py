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

SEED_WORD: Final = (1 << 32) - 1
UNUSED_EOS: Final = -1


class Columns:
    """What several readers need of a round, computed once: each lane's slot and query length."""

    __slots__ = ("lengths", "slots", "total")

    def __init__(self, slots: list[int], lengths: list[int]) -> None:
        self.slots = slots
        self.lengths = lengths
        self.total = sum(lengths)


Read = Callable[[Sequence[LaneWork], Columns], Any]


class Scope(Enum):
    """What a source has one value (or row of values) for."""

    ROUND = "round"
    LANE = "lane"
    TOKEN = "packed token"


@dataclass(frozen=True)
class Source:
    """A source's scope, element kind and reader. `columns` is the number of elements that a row
    has, 0 where the destination decides; `admission` says that lanes must carry one."""

    scope: Scope
    read: Read
    real: bool = False
    columns: int = 1
    admission: bool = False


def query_lengths(operation: Operation, lanes: Sequence[LaneWork]) -> list[int]:
    """Tokens that each lane consumes in a round of `operation`."""
    if operation is Operation.DECODE:
        return [1] * len(lanes)
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
    ValueSource.PROMPT_TOKEN: Source(
        Scope.TOKEN, lambda lanes, _: list(chain.from_iterable(lane.tokens for lane in lanes))
    ),
    ValueSource.PROMPT_POSITION: Source(Scope.TOKEN, _positions),
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
