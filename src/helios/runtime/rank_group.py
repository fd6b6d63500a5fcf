"""Several ranks of one host, in step: every round runs on all of them, driven from one loop.

Each rank is a `ModelRuntime` with a device, memory, programs and frames of its own. A round is
packed and queued rank by rank, has run once it has on each, and its answer is rank 0's. What the
others commit must be the same: a rank that differs, or fails, ends the whole, since it can't be
known any more whose state is right. The scheduler's side doesn't tell a group from a single rank
(`served`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from numpy.typing import NDArray

from helios.core.weights import WeightMap
from helios.errors import ExecutionError
from helios.runtime.device import FAILED_DRAIN_NS
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rank_agreement import check_geometries_agree
from helios.runtime.rank_content import RankContents
from helios.runtime.rank_errors import of_rank
from helios.runtime.rounds import Completion, LaneCompletion, Round

# A rank is waited for so long before the next one is looked at: one that has failed may be what
# the others wait for. A device looks for its errors within this time.
_TURN_MS: Final = 10
# Of a lane's answer, what state and scheduler go on from. Log-probabilities only leave.
_COMMITTED: Final = (
    *("slot", "generation", "consumed", "tokens"),
    *("finish", "error", "draft_cursor", "model_reserved"),
)


class RankGroup:
    """Use `rank_loading.load_ranks`; call `close` when done. Not thread-safe. `geometry` is every
    rank's, but for bytes, which are all ranks' together, as those of `memory` are."""

    def __init__(
        self,
        ranks: Sequence[ModelRuntime],
        maps: Sequence[WeightMap] = (),
        load_ns: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`maps` are closed with the ranks, `load_ns` is what loading took beside them. Raises
        ContractError where the ranks' geometries differ."""
        geometries = [rank.geometry for rank in ranks]
        check_geometries_agree(geometries)
        self.ranks = tuple(ranks)
        self.contract = ranks[0].contract
        self.geometry = replace(
            geometries[0],
            cache_nbytes=sum(one.cache_nbytes for one in geometries),
            snapshot_nbytes=sum(one.snapshot_nbytes for one in geometries),
        )
        self.memory = _total(rank.memory for rank in ranks)
        self.load_ns = _total([load_ns, *(rank.load_ns for rank in ranks)])
        self.cache_content = RankContents([rank.cache_content for rank in ranks])
        self.tuning_ns = sum(rank.tuning_ns for rank in ranks)
        self._maps = tuple(maps)
        self._failure: ExecutionError | None = None

    # ------------------------------------------------------------ rounds

    def can_submit(self) -> bool:
        """Whether the next round's frame is free, which it is on all ranks or on none."""
        return self.ranks[0].can_submit()

    def submit(self, work: Round) -> int:
        """Packs and queues a round on every rank; returns its sequence. Raises ExecutionError as
        one rank does, naming the rank; what rank 0 refuses is submitted nowhere."""
        self._check()
        sequence = 0
        for number, rank in enumerate(self.ranks):
            try:
                sequence = rank.submit(work)
            except ExecutionError as error:
                if number == 0 and not rank.failed:
                    raise of_rank(error, number, ExecutionError) from error
                raise self._fail(error, number) from error
        return sequence

    def pack_ahead(self, work: Round) -> None:
        """Packs the round that is thought to be submitted next on every rank."""
        for rank in self.ranks:
            rank.pack_ahead(work)

    def completed(self, sequence: int) -> bool:
        """Whether a round has run on every rank. Raises ExecutionError if one failed."""
        self._check()
        every = True
        for number, rank in enumerate(self.ranks):
            try:
                every &= rank.completed(sequence)
            except ExecutionError as error:
                raise self._fail(error, number) from error
        return every

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits for a round on every rank; False on time-out, which is looked at after each rank
        has been. Raises ExecutionError as soon as one rank fails, whatever the others do."""
        self._check()
        running = list(enumerate(self.ranks))
        deadline = time.monotonic_ns() + timeout_ms * 1_000_000
        while True:
            running = [one for one in running if not self._wait(*one, sequence)]
            if not running:
                return True
            if time.monotonic_ns() >= deadline:
                return False

    def read(self, sequence: int) -> Completion:
        """A completed round's answer, rank 0's, timed from the first rank's start to the last
        one's end; frees its frame. Raises ExecutionError where it isn't in flight or hasn't
        completed, and for good where the ranks don't commit the same."""
        if not self.completed(sequence):
            raise ExecutionError("has not completed", where=f"round {sequence}")
        answers: list[Completion] = []
        for number, rank in enumerate(self.ranks):
            try:
                answers.append(rank.read(sequence))
            except ExecutionError as error:
                if number == 0:
                    raise of_rank(error, number, ExecutionError) from error
                raise self._fail(error, number) from error
        first = answers[0]
        for number, other in enumerate(answers[1:], 1):
            what = difference(first.lanes, other.lanes)
            if what:
                disagreement = ExecutionError(
                    f"commits something else than rank 0: {what}",
                    where=f"round {sequence}",
                    remedy="Start again; where it comes back, report it with the core's digest",
                )
                raise self._fail(disagreement, number)
        return Completion(
            sequence,
            first.lanes,
            min(answer.started_ns for answer in answers),
            max(answer.completed_ns for answer in answers),
        )

    # ------------------------------------------------------------ observation

    def timing(self, sequence: int) -> tuple[int, int]:
        """From the first rank's start to the last one's end, on time.monotonic_ns's clock."""
        starts, ends = zip(*(rank.timing(sequence) for rank in self.ranks), strict=True)
        return min(starts), max(ends)

    def launches(self) -> int:
        """Launches that all ranks have begun so far."""
        return sum(rank.launches() for rank in self.ranks)

    def read_buffer(self, name: str) -> NDArray[Any]:
        """A copy of a buffer's values on rank 0."""
        return self.ranks[0].read_buffer(name)

    def close(self) -> None:
        """Drains every rank, then lets go of memory and weights. Once one has failed the others
        may wait for it for ever: they have one short time for all together. Idempotent."""
        failed = self._failure is not None
        drain_by_ns = time.monotonic_ns() + FAILED_DRAIN_NS if failed else None
        for rank in self.ranks:
            rank.close(drain_by_ns)
        for mapped in self._maps:
            mapped.close()

    # ------------------------------------------------------------ failures

    def _wait(self, number: int, rank: ModelRuntime, sequence: int) -> bool:
        try:
            return rank.wait(sequence, _TURN_MS)
        except ExecutionError as error:
            raise self._fail(error, number) from error

    def _check(self) -> None:
        if self._failure is not None:
            raise _anew(self._failure)

    def _fail(self, error: ExecutionError, rank: int) -> ExecutionError:
        """Keeps the first failure, by its rank: nothing that comes after it can be believed."""
        if self._failure is None:
            self._failure = of_rank(error, rank, ExecutionError)
        return _anew(self._failure)


def _total(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sums by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _anew(error: ExecutionError) -> ExecutionError:
    """An error to raise: one that is kept and raised would hold on to every frame that it passes,
    and so to the ranks."""
    return ExecutionError(error.what, where=error.where, remedy=error.remedy)


def difference(first: Sequence[LaneCompletion], other: Sequence[LaneCompletion]) -> str:
    """The first thing that two ranks commit differently in a round; empty where nothing is. Says
    where, and no tokens: those are a client's."""
    if len(first) != len(other):
        return f"{len(other)} lanes, not {len(first)}"
    for lane, (one, own) in enumerate(zip(first, other, strict=True)):
        # Tokens are the fourth of its values, log-probabilities the fifth, then come four more.
        if one[:4] != own[:4] or one[5:9] != own[5:9]:
            names = [name for name in _COMMITTED if getattr(one, name) != getattr(own, name)]
            return f"{', '.join(names)} of lane {lane} (slot {one.slot})"
    return ""
