"""SNAPSHOT rounds: which endpoints are worth one, and the rounds that take them.

A snapshot is asked for while the device state is at its endpoint or will be when the round runs:
rounds run in the order in which they are submitted. Its row is taken then, and is private until
the round's fence. Nobody waits for a snapshot but the lane whose prompt was split for it and the
slot of a request that has ended; where no row can be had, there is none.
"""

from __future__ import annotations

from helios.runtime.geometry import Geometry, Operation
from helios.runtime.rounds import LaneWork
from helios.scheduler.cache import NO_ROW, PrefixCache
from helios.scheduler.deferred import Deferred
from helios.scheduler.planned import PlannedRound, planned_round
from helios.scheduler.publication import Publication
from helios.scheduler.requests import Phase, Resident


class Snapshots:
    """`rows` are those taken for snapshots that aren't published yet."""

    def __init__(
        self,
        geometry: Geometry,
        cache: PrefixCache,
        publication: Publication,
        deferred: Deferred,
    ) -> None:
        self._rules = geometry.history
        self._page_tokens = geometry.page_tokens
        self._cache = cache
        self._publication = publication
        self._deferred = deferred
        self._programs = geometry.of(Operation.SNAPSHOT) if self._rules.restores else ()
        self._due: list[Resident] = []
        self.rows: set[int] = set()

    # ------------------------------------------------------------ which

    def pays(self, resident: Resident, endpoint: int) -> bool:
        """Whether a snapshot of the endpoint would serve what pages and earlier snapshots can't:
        it lies within a page, or pages alone can't begin a request of this model."""
        if not self._programs or not self._publication.publishes(resident):
            return False
        by_pages = 0
        if self._rules.starts_at_pages:
            by_pages = endpoint - endpoint % self._page_tokens
        return endpoint > max(by_pages, resident.saved)

    def next_stop(self, resident: Resident, start: int) -> int:
        """Where a chunk must end that the prompt's tokens from `start` on are consumed in. A model
        that can save only where it stands stops at boundaries, and before the prompt's last token,
        which whoever has the same prompt must consume anew; each stop costs two rounds, so at least
        a page must have been consumed since the one before."""
        if self._rules.names_endpoint:
            return resident.prompt_tokens
        for stop in (*self._boundaries(resident), resident.prompt_tokens - 1):
            if stop - start >= self._page_tokens and self.pays(resident, stop):
                return stop
        return resident.prompt_tokens

    def _boundaries(self, resident: Resident) -> tuple[int, ...]:
        """The first of the prompt's boundaries behind what it has been given, after what many
        prompts share, and the last one, where a conversation parts that is asked again otherwise.
        More would take the rows of others. Pages alone serve them where they can begin a request,
        but for less than a page."""
        if self._rules.starts_at_pages:
            return ()
        given = resident.hold.endpoint
        ahead = [b for b in resident.progress.request.boundaries if b > given]
        return (ahead[0], ahead[-1]) if len(ahead) > 1 else tuple(ahead)

    # ------------------------------------------------------------ asking

    def ask(self, resident: Resident, endpoint: int) -> bool:
        """Whether the resident gets a snapshot of the endpoint in one of the next rounds. It
        replaces one that is due."""
        self.drop(resident)
        if not self.pays(resident, endpoint):
            return False
        if not self._cache.rows.can_take():
            self._deferred.run()
        row = self._cache.take_row()
        if row == NO_ROW:
            return False
        self.rows.add(row)
        resident.due_endpoint, resident.due_row = endpoint, row
        self._due.append(resident)
        return True

    def drop(self, resident: Resident) -> None:
        """Forgets a snapshot that is due, if one is."""
        if resident.due_endpoint < 0:
            return
        self._due.remove(resident)
        self._give_back(resident.due_row)
        resident.due_endpoint = resident.due_row = -1

    def prompts_went_on(self, planned: PlannedRound) -> None:
        """A round with prompts' chunks has been submitted: asks where a chunk ends at an endpoint
        that others will begin from. Within the page written last any endpoint can be named."""
        for resident, lane in zip(planned.residents, planned.round.lanes, strict=True):
            if not lane.tokens or resident.refreshes:
                continue
            prompt = resident.prompt_tokens
            if lane.sample:
                # Without further rounds the end of the request is saved soon, in the same page.
                last = resident.phase is Phase.EXHAUSTED and prompt % self._page_tokens
                if self._rules.names_endpoint and not last:
                    self.ask(resident, prompt - 1)
            elif resident.planned_consumed == resident.chunk_end:
                resident.chunk_end = self.next_stop(resident, resident.planned_consumed)
                if self.ask(resident, resident.planned_consumed):
                    resident.phase = Phase.SAVING

    # ------------------------------------------------------------ rounds

    @property
    def any_due(self) -> bool:
        """Whether a snapshot waits for its round."""
        return bool(self._due)

    def plan(self) -> PlannedRound | None:
        """A round of the snapshots that are due, as many as fit in one."""
        if not self._due:
            return None
        residents = self._due[: self._programs[-1].batch_capacity]
        lanes = [
            LaneWork(
                r.slot, r.generation, r.due_endpoint, (), False, r.pages, snapshot_row=r.due_row
            )
            for r in residents
        ]
        return planned_round(self._programs, residents, lanes)

    def begun(self, planned: PlannedRound) -> None:
        """A planned round of snapshots has been submitted."""
        for resident in planned.residents:
            self._due.remove(resident)
            resident.saved = max(resident.saved, resident.due_endpoint)
            resident.due_endpoint = resident.due_row = -1

    def fence(self, resident: Resident, lane: LaneWork) -> None:
        """The fence of a snapshot's round has passed, and nothing was wrong."""
        self.rows.discard(lane.snapshot_row)
        self._publication.saved(resident, lane.start, lane.snapshot_row)

    def fault(self, lane: LaneWork) -> None:
        """The snapshot's round failed: nothing of it is published."""
        self._give_back(lane.snapshot_row)

    def fail(self) -> None:
        """The device has failed: no snapshot is due or in flight any more."""
        for resident in self._due:
            resident.due_endpoint = resident.due_row = -1
        self._due.clear()
        for row in list(self.rows):
            self._give_back(row)

    def _give_back(self, row: int) -> None:
        self.rows.discard(row)
        self._cache.give_back_row(row)
