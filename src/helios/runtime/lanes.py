"""What every reader needs of a round's lanes: slots, query lengths, and which operations' lanes
bring what. Called by `packing` and by the readers of `value_sources` and `array_sources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.contract.enums import Operation
from helios.runtime.rounds import LaneAdmission, LaneExtras, LaneWork
from helios.runtime.state_rows import StateRows

NO_EXTRAS: Final = LaneExtras()

# Operations that take up a request; their lanes carry an admission.
ADMITTING: Final = frozenset((Operation.INITIALIZE, Operation.RESTORE, Operation.RESUME))
# Operations that move state and consume no tokens.
CONSUMES_NOTHING: Final = ADMITTING | {Operation.SNAPSHOT}
# Operations whose lanes bring prompt tokens, all or one of them.
PROMPTS: Final = frozenset((Operation.PREFILL, Operation.SCORED_PREFILL))
WITH_TOKENS: Final = PROMPTS | {Operation.MIXED}
# Operations that go on from a token that the request has emitted.
TAKES_EMITTED: Final = frozenset(
    (Operation.RESUME, Operation.DECODE, Operation.SPECULATIVE, Operation.MIXED)
)
# Operations whose lanes may bring proposed tokens.
SPECULATIVE: Final = frozenset((Operation.SPECULATIVE,))


# Places in a `LaneWork`: what is read of every lane in every round is read by them, which takes
# half the time of reading by name.
SLOT: Final = 0
GENERATION: Final = 1
START: Final = 2
PAGES: Final = 5
EXTRAS: Final = 11
_PLACES: Final = {
    "slot": SLOT,
    "generation": GENERATION,
    "start": START,
    "pages": PAGES,
    "extras": EXTRAS,
}
assert all(LaneWork._fields[place] == name for name, place in _PLACES.items())


class Columns:
    """What several readers need of a round, computed once: each lane's slot, generation and query
    length. `total` is the number of packed tokens."""

    __slots__ = ("generations", "lengths", "rows", "slots", "total")

    def __init__(self, lanes: Sequence[LaneWork], lengths: list[int], rows: StateRows) -> None:
        self.slots: list[int] = [lane[SLOT] for lane in lanes]
        self.generations: list[int] = [lane[GENERATION] for lane in lanes]
        self.lengths = lengths
        self.total = sum(lengths)
        self.rows = rows


def query_lengths(operation: Operation, lanes: Sequence[LaneWork]) -> list[int]:
    """Packed tokens of each lane in a round of `operation`. In a MIXED round a lane without tokens
    decodes one."""
    if operation is Operation.DECODE:
        return [1] * len(lanes)
    if operation in CONSUMES_NOTHING:
        return [0] * len(lanes)
    if operation is Operation.MIXED:
        return [len(lane.tokens) or 1 for lane in lanes]
    if operation in PROMPTS:
        return [len(lane.tokens) for lane in lanes]
    return [extras_of(lane).length for lane in lanes]


def extras_of(lane: LaneWork) -> LaneExtras:
    """The lane's extras, or those that say nothing."""
    return lane.extras or NO_EXTRAS


def admission_of(lane: LaneWork) -> LaneAdmission:
    """The lane's admission; ValueError without one."""
    if lane.admission is None:
        raise ValueError("has no admission")
    return lane.admission
