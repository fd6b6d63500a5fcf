"""Who takes part in a round of prompts or of running outputs, and with how many tokens.

A cohort takes the pages that its round needs, and may preempt for them; a lane that has to wait
for a completion (`feedback`) is left out. Whose turn it is, and how large a chunk may be, is
decided by the caller (`Turns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.runtime.lanes import START
from helios.runtime.rounds import LaneExtras, LaneWork
from helios.scheduler.feedback import awaits_feed, awaits_first_token
from helios.scheduler.planned import PlannedRound, planned_round, required_programs, smallest
from helios.scheduler.requests import Phase, Resident
from helios.scheduler.residency import Residency

_BY_LAST_TURN = attrgetter("last_turn", "rank")


class Cohorts:
    """Makes rounds of the residents of a `Residency` with the programs of a geometry."""

    def __init__(self, geometry: Geometry, residency: Residency) -> None:
        self._residency = residency
        self._prefill = required_programs(geometry, Operation.PREFILL)
        self._scored = geometry.of(Operation.SCORED_PREFILL)
        self._decode = required_programs(geometry, Operation.DECODE)
        self._decode_by_feed = {p.host_fed: _fed_alike(self._decode, p) for p in self._decode}
        self._mixed = geometry.of(Operation.MIXED)
        self.chunk_tokens = self._prefill[-1].packed_token_capacity
        self.decode_lanes = self._decode[-1].batch_capacity
        self._ahead: PlannedRound | None = None

    # ------------------------------------------------------------ who waits, for what

    def waiting(self) -> tuple[list[Resident], list[Resident]]:
        """Residents with a prompt to prefill, and residents that decode, most urgent first."""
        prompts: list[Resident] = []
        decoding: list[Resident] = []
        for resident in self._residency.residents:
            phase = resident.phase
            if phase is Phase.DECODING:
                decoding.append(resident)
            elif phase is Phase.PREFILLING:
                prompts.append(resident)
        return prompts, decoding

    def prompt_programs(self, prompt: Resident) -> tuple[ProgramInfo, ...]:
        """The programs that prefill a prompt: it may want its tokens scored."""
        return self._scored if prompt.progress.wants_scores else self._prefill

    def decode_program(self, lanes: int) -> ProgramInfo:
        """The program of a DECODE round of so many lanes, as far as they fit in one."""
        return smallest(self._decode, min(lanes, self.decode_lanes))

    def mixed_programs(self, prompt: Resident, decoding: int) -> list[ProgramInfo]:
        """The programs that prefill a prompt beside so many decoding lanes, the last lane."""
        if prompt.progress.wants_scores:
            return []
        return [
            p
            for p in self._mixed
            if p.batch_capacity > decoding and p.packed_token_capacity > decoding
        ]

    # ------------------------------------------------------------ rounds

    def prompt_round(self, prompts: Sequence[Resident], token_budget: int) -> PlannedRound | None:
        """Packs prompts, most urgent first, up to the budget and the largest program's lanes. The
        first that can go on decides whether scored prompts go, or the others: they share no
        round."""
        lanes: list[LaneWork] = []
        residents: list[Resident] = []
        programs: tuple[ProgramInfo, ...] = ()
        program = self._prefill[-1]  # the one that holds the whole budget
        tokens_left = token_budget
        for resident in prompts:
            needed = self.prompt_programs(resident)
            if not lanes:
                programs = needed
                tokens_left = min(token_budget, programs[-1].packed_token_capacity)
                program = smallest(programs, 1, tokens_left)
            if needed is not programs or awaits_feed(resident, program):
                continue
            lane = self._chunk(resident, tokens_left)
            if lane is None:
                continue
            residents.append(resident)
            lanes.append(lane)
            tokens_left -= len(lane.tokens)
            if not tokens_left or len(lanes) == programs[-1].batch_capacity:
                break
        if not lanes:
            return None
        tokens = sum(len(lane.tokens) for lane in lanes)
        return planned_round(_fed_alike(programs, program), residents, lanes, tokens)

    def decode_round(self, decoding: Sequence[Resident]) -> PlannedRound | None:
        """One token for every decoding resident that can go on; where they are more than the
        largest program's lanes, for those that have waited longest.

        Lanes of a program that the host feeds go together: while one of them waits for its
        completion the others do too, unless they fill the largest program."""
        ahead = self._still_ahead(decoding)
        if ahead is not None:
            return ahead
        going = [r for r in decoding if not awaits_first_token(r)]
        if not going:
            return None
        program = self.decode_program(len(going))
        if program.host_fed:
            fed = [r for r in going if not awaits_feed(r, program)]
            if len(fed) < min(len(going), self.decode_lanes):
                return None
            going = fed
        ready = [r for r in going if self._one_more(r)]
        if not ready:
            return None
        if len(ready) > self.decode_lanes:
            ready = sorted(ready, key=_BY_LAST_TURN)[: self.decode_lanes]
        return self._decode_round(ready, program)

    def _decode_round(self, residents: Sequence[Resident], program: ProgramInfo) -> PlannedRound:
        return planned_round(
            self._decode_by_feed[program.host_fed], residents, _decode_lanes(residents, program)
        )

    def look_ahead(self) -> PlannedRound | None:
        """The round that `decode_round` makes next if nothing happens but that every resident goes
        on, with the pages that it needs. None where that can't be said: somebody has a prompt,
        waits for a completion, or would have to preempt for a page.

        Most rounds are followed so. What is made while a round runs needn't be made between its
        completion and the next launch."""
        self.drop_ahead()
        prompts, decoding = self.waiting()
        if prompts or not 0 < len(decoding) <= self.decode_lanes:
            return None
        program = self.decode_program(len(decoding))
        if program.host_fed or any(map(awaits_first_token, decoding)):
            return None
        ahead = self._ahead = self._decode_round(decoding, program)
        for resident in decoding:
            # Admission counts such a page as taken already (`Residency._promised`). Nothing is
            # evicted for a round that may never come.
            if resident.planned_consumed == resident.covered:
                if not self._residency.cache.pages.can_take(1):
                    self.drop_ahead()
                    return None
                self._residency.cover(resident, resident.covered + 1)
        return ahead

    def drop_ahead(self) -> None:
        """What `look_ahead` has made isn't the next round: its pages are there for whoever goes
        first, who would evict others for want of them."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            for resident in ahead.residents:
                self._residency.uncover(resident)

    def _still_ahead(self, decoding: Sequence[Resident]) -> PlannedRound | None:
        """What `look_ahead` has made, where it is what these residents' round would be now: nobody
        has come or gone. Slots stay and pages are only added, so that nothing else can differ."""
        ahead = self._ahead
        if ahead is None:
            return None
        if len(decoding) != len(ahead.residents):
            self.drop_ahead()
            return None
        for resident, other, lane in zip(decoding, ahead.residents, ahead.round.lanes, strict=True):
            if (
                resident is not other
                or resident.phase is not Phase.DECODING
                or resident.planned_consumed != lane[START]
            ):
                self.drop_ahead()
                return None
        self._ahead = None
        return ahead

    def mixed_round(
        self,
        decoding: Sequence[Resident],
        prompt: Resident,
        token_budget: int,
        program: ProgramInfo,
    ) -> PlannedRound | None:
        """One token for every decoding resident that can go on, and a chunk of one prompt; None
        where either side can't."""
        going = [r for r in decoding if not awaits_first_token(r)]
        if any(awaits_feed(r, program) for r in (*going, prompt)):
            return None
        ready: list[Resident] = []
        chunk: LaneWork | None = None
        # In the residency's order, since who takes a page preempts only those behind it.
        members = {id(r) for r in going}
        for resident in list(self._residency.residents):
            if resident is prompt:
                chunk = self._chunk(resident, token_budget)
            elif id(resident) in members and self._one_more(resident):
                ready.append(resident)
        if chunk is None or not ready:
            return None
        return planned_round(
            _fed_alike(self._mixed, program),
            [*ready, prompt],
            [*_decode_lanes(ready, program), chunk],
            len(ready) + len(chunk.tokens),
        )

    def _chunk(self, resident: Resident, tokens: int) -> LaneWork | None:
        """The next chunk of a prompt, at most so many tokens, with pages for it."""
        residency = self._residency
        start = resident.planned_consumed
        if resident.phase is not Phase.PREFILLING:  # preempted meanwhile
            return None
        if residency.reach(resident, start + 1) <= start and not residency.make_room(resident):
            return None
        end = residency.reach(resident, min(start + tokens, resident.chunk_end))
        residency.cover(resident, end)
        progress = resident.progress
        scores, likeliest = progress.wants_scores, progress.scored_top_logprobs
        return LaneWork(
            resident.slot,
            resident.generation,
            start,
            progress.chunk(start, end),
            end == resident.prompt_tokens,
            resident.pages,
            targets=_targets(resident, start, end) if scores else (),
            extras=LaneExtras(scored_top_logprobs=likeliest) if scores and likeliest else None,
        )

    def _one_more(self, resident: Resident) -> bool:
        """Whether a decoding resident has a page for its next token, or gets one."""
        if resident.phase is not Phase.DECODING:  # preempted meanwhile
            return False
        if resident.planned_consumed == resident.covered:
            if not self._residency.make_room(resident):
                return False
            self._residency.cover(resident, resident.covered + 1)
        return True


def _fed_alike(programs: Sequence[ProgramInfo], program: ProgramInfo) -> Sequence[ProgramInfo]:
    """Those among which the round's may be chosen after its lanes were held against `program`."""
    return [p for p in programs if p.host_fed == program.host_fed]


def _decode_lanes(residents: Sequence[Resident], program: ProgramInfo) -> list[LaneWork]:
    lanes = [
        LaneWork(r.slot, r.generation, r.planned_consumed, (), True, r.pages) for r in residents
    ]
    if program.host_fed:
        return [
            lane._replace(pending_token=resident.progress.tokens[lane.start])
            for lane, resident in zip(lanes, residents, strict=True)
        ]
    return lanes


def _targets(resident: Resident, start: int, end: int) -> list[int]:
    """For each token of a chunk the one that follows it, −1 where that isn't scored, and after the
    last."""
    progress = resident.progress
    unscored = min(max(progress.needed_from - start, 0), end - start)
    targets = progress.tokens[start + unscored + 1 : min(end + 1, resident.prompt_tokens)]
    return [-1] * unscored + targets + [-1] * (end - start - unscored - len(targets))
