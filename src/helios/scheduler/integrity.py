"""Whether the scheduler's books agree: what is wrong with them, and what they look like then.

Read-only and slow (it walks the prefix tree): for an idle worker and for tests. A violation is a
bug of Helios's. The worker reports it and goes on; tests raise it. Neither prompts nor tokens
occur in a report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from helios.dataclass import dataclass
from helios.errors import HeliosError
from helios.scheduler.requests import Ending, Phase, Progress, Resident

if TYPE_CHECKING:
    from helios.scheduler.deferred import Deferred
    from helios.scheduler.residency import Residency


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """`violations` are sentences, none where all is well; `dump` then is empty, else it lists
    slots, pages, rows, residents and rounds."""

    violations: tuple[str, ...]
    dump: str

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations


class IntegrityError(HeliosError):
    """The scheduler's books don't agree; `report` says how."""

    def __init__(self, report: IntegrityReport) -> None:
        self.report = report
        super().__init__(
            f"the books don't agree: {'; '.join(report.violations)}\n{report.dump}",
            where="scheduler",
            remedy="Report this with the dump and start the server again",
        )


def inspect(
    residency: Residency,
    live: Iterable[Progress],
    siblings: Iterable[Progress],
    in_flight: Sequence[Sequence[Resident]],
    rows: Iterable[int],
    deferred: Deferred,
) -> IntegrityReport:
    """Looks at everything. `live` are the requests whose last event is to come, `siblings` those
    that wait for another one's prompt, `in_flight` the residents of each submitted round, `rows`
    those taken for snapshots not yet published, `deferred` what is still to be done for
    residents."""
    rows = list(rows)
    cache = residency.cache
    violations = [
        *_slots(residency),
        *cache.violations([r.private.values() for r in residency.residents], rows),
        *_ranks(residency),
        *_requests(residency, list(live), list(siblings)),
        *_fences(residency, in_flight),
    ]
    for resident in residency.residents:
        violations += _resident(residency, resident, deferred)
    dump = _dump(residency, in_flight, rows) if violations else ""
    return IntegrityReport(tuple(violations), dump)


def _slots(residency: Residency) -> list[str]:
    slots = residency.slots
    try:
        slots.check_books(resident.slot for resident in residency.residents)
    except AssertionError as error:
        return [str(error)]
    return []


def _ranks(residency: Residency) -> list[str]:
    """Queues are in the order of rank, and nobody is in two."""
    found: list[str] = []
    for name, ranks in (
        ("residents", [r.rank for r in residency.residents]),
        ("waiting", [p.rank for p in residency.waiting]),
    ):
        if ranks != sorted(set(ranks)):
            found.append(f"the order of rank is broken among {name}: {ranks}")
    admitted = [r for r in residency.residents if r.phase is Phase.ADMITTED]
    if admitted != residency.admitted:
        found.append(f"{len(residency.admitted)} of {len(admitted)} residents await their state")
    return found


def _requests(residency: Residency, live: list[Progress], siblings: list[Progress]) -> list[str]:
    """Every live request waits, for a slot or for its leader, or is going on, once."""
    going_on = Counter(id(progress) for progress in [*residency.waiting, *siblings])
    going_on.update(
        id(r.progress)
        for r in residency.residents
        if r.phase is not Phase.ENDING or r.ending is Ending.PREEMPTED
    )
    if going_on != Counter(id(progress) for progress in live):
        return [f"{sum(going_on.values())} requests wait or go on, {len(live)} are live"]
    return []


def _fences(residency: Residency, in_flight: Sequence[Sequence[Resident]]) -> list[str]:
    """Residents count the rounds in flight that have a lane of theirs."""
    lanes = Counter(id(resident) for residents in in_flight for resident in residents)
    found = [
        f"slot {r.slot} counts {r.rounds_in_flight} rounds in flight of {lanes[id(r)]}"
        for r in residency.residents
        if r.rounds_in_flight != lanes[id(r)]
    ]
    strangers = lanes.keys() - {id(r) for r in residency.residents}
    if strangers:
        found.append(f"{len(strangers)} lanes in flight are of nobody who is resident")
    return found


def _resident(residency: Residency, resident: Resident, deferred: Deferred) -> list[str]:
    """What must hold of each resident."""
    cache, hold = residency.cache, resident.hold
    places = len(resident.pages)
    checks = (
        (hold in cache.holds, "its hold was released"),
        (resident.covered == places * cache.page_tokens, "it covers what it has no pages for"),
        (
            resident.consumed <= resident.planned_consumed <= resident.covered,
            "its endpoints are out of order",
        ),
        (
            resident.rounds_in_flight > 0
            or resident.due_endpoint >= 0
            or resident.undecided
            or resident in deferred
            or resident.phase is not Phase.ENDING,
            "it has ended and wasn't given back",
        ),
        (
            all(resident.pages[place] == page for place, page in resident.private.items()),
            "its own pages aren't those of its list",
        ),
        (
            all(
                place in resident.private
                for place in range(max(hold.depth, resident.first_page), places)
            ),
            "its list has pages that are neither its own nor held",
        ),
        ((resident.due_endpoint < 0) == (resident.due_row < 0), "its snapshot is half due"),
    )
    return [f"slot {resident.slot}: {problem}" for holds, problem in checks if not holds]


def _dump(
    residency: Residency, in_flight: Sequence[Sequence[Resident]], rows: Sequence[int]
) -> str:
    cache, slots = residency.cache, residency.slots
    lines = [
        f"pages: {cache.pages.pages}, free {cache.pages.free}, evictable {cache.evictable_pages}; "
        f"rows: {cache.rows.rows}, free {cache.rows.free}, evictable {cache.evictable_rows}, "
        f"taken {list(rows)}; slots: {slots.slots}, free {slots.free}; "
        f"waiting: {[p.request.request_id for p in residency.waiting]}",
    ]
    lines += [
        f"request {r.progress.request.request_id} rank {r.rank} slot {r.slot} generation "
        f"{r.generation} {r.phase.name}{f' {r.ending.name}' if r.ending else ''}: consumed "
        f"{r.consumed} of {r.planned_consumed} planned, emitted {r.progress.emitted} of "
        f"{r.planned_emitted}, prompt {r.prompt_tokens}, rounds {r.rounds_in_flight}, pages "
        f"{r.pages}, own {sorted(r.private.values())}, held {r.hold.depth}, first "
        f"{r.first_page}, snapshot {r.due_endpoint} in {r.due_row}"
        for r in residency.residents
    ]
    lines += [
        f"round in flight: slots {[resident.slot for resident in residents]}"
        for residents in in_flight
    ]
    return "\n".join(lines)
