"""Whose turn it is: prompts or running outputs, and how many prompt tokens go at once.

Both kinds of work are charged the time that their rounds are predicted to take, each against its
share of the device; whoever is behind goes next. Chunks of prompts are cut so that running
requests go on within their time between tokens. Where nothing competes nothing is cut, and
nothing is measured for the sake of a choice. `RoundPlanner` is the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.scheduler.chunks import Chunk, chunk_within
from helios.scheduler.cohorts import Cohorts
from helios.scheduler.costs import CostModel
from helios.scheduler.feedback import awaits_cost
from helios.scheduler.options import SchedulerOptions
from helios.scheduler.planned import PlannedRound, smallest
from helios.scheduler.requests import Resident

CHUNK_STEPS: Final = 4  # a chunk beside running outputs takes as long as so many decode rounds
PATIENCE: Final = 64  # rounds of one kind after which the other one goes, whatever they cost
_NS: Final = 1e6  # in a millisecond


class Turns:
    """Chooses among the rounds that `cohorts` can make, by what `costs` says."""

    def __init__(
        self, geometry: Geometry, cohorts: Cohorts, costs: CostModel, options: SchedulerOptions
    ) -> None:
        self._cohorts = cohorts
        self._costs = costs
        self._share = options.prefill_share
        self._bound_ns = None if options.max_step_ms is None else options.max_step_ms * _NS
        self._chunk_tokens = min(
            options.prefill_chunk_tokens or cohorts.chunk_tokens, cohorts.chunk_tokens
        )
        self._least_tokens = min(geometry.page_tokens, self._chunk_tokens)
        # How far prompts are ahead of running outputs, in ns of device time over their share.
        self._lead_ns = 0.0
        # Predicted time of the rounds since the last one that went on with running outputs.
        self._since_ns = 0.0
        # Rounds of one kind in a row while the other one waited: positive for prompts.
        self._in_a_row = 0
        self._measuring: ProgramInfo | None = None

    def plan(self, outstanding: int) -> PlannedRound | None:
        """The next round of prompts, running outputs or both, with `outstanding` rounds in
        flight; None where nobody can go on before a fence."""
        prompts, decoding = self._cohorts.waiting()
        if prompts:
            self._cohorts.drop_ahead()
        if prompts and decoding:
            return self._compete(prompts, decoding, outstanding)
        self._in_a_row = 0
        self._since_ns = 0.0
        self._measuring = None
        planned = None
        if decoding:
            planned = self._cohorts.decode_round(decoding)
            # Time that nobody else wanted pays a debt, and earns no claim.
            if planned is not None and self._lead_ns > 0.0:
                self._lead_ns = max(self._lead_ns - self._ns(planned) / (1 - self._share), 0.0)
        elif prompts:
            planned = self._cohorts.prompt_round(prompts, self._chunk_tokens)
            if planned is not None and self._lead_ns < 0.0:
                self._lead_ns = min(self._lead_ns + self._ns(planned) / self._share, 0.0)
        return planned

    def passed(self, planned: PlannedRound) -> None:
        """Another round goes first, such as an admission."""
        self._since_ns += self._ns(planned)

    # ------------------------------------------------------------ while both wait

    def _compete(
        self, prompts: Sequence[Resident], decoding: Sequence[Resident], outstanding: int
    ) -> PlannedRound | None:
        costs, cohorts = self._costs, self._cohorts
        if self._measuring is not None and awaits_cost(costs, self._measuring, outstanding):
            return None
        self._measuring = None
        decode = cohorts.decode_program(len(decoding))
        if awaits_cost(costs, decode, outstanding):
            return None
        if not costs.fresh(decode.index):
            # Chunks are cut by the time between tokens: it is measured before any is.
            if self._in_a_row > -PATIENCE:
                return self._decode_turn(decoding) or self._prompt_turn(prompts, self._least_tokens)
            return self._prompt_turn(prompts, self._least_tokens) or self._decode_turn(decoding)
        lanes = min(len(decoding), decode.batch_capacity)
        step_ns = costs.predict_ns(decode.index, lanes) or 0.0
        chunk = self._chunk(prompts, decoding, step_ns) if self._prompts_due() else None
        if chunk is None or self._comes_too_late(chunk):
            planned = self._decode_turn(decoding)
            if planned is not None or outstanding:
                return planned
            chunk = chunk or self._chunk(prompts, decoding, step_ns)
        if awaits_cost(costs, chunk.program, outstanding):
            return None
        if chunk.program.operation is Operation.MIXED:
            planned = self._mixed_turn(prompts[0], decoding, chunk, step_ns)
            if planned is not None:
                return planned
        return self._prompt_turn(prompts, chunk.tokens) or self._decode_turn(decoding)

    def _prompts_due(self) -> bool:
        """Whether it is the prompts' turn, by their share and with patience."""
        if abs(self._in_a_row) >= PATIENCE:
            return self._in_a_row < 0
        return self._lead_ns <= 0.0

    def _comes_too_late(self, chunk: Chunk) -> bool:
        """Whether running outputs must go on before the chunk does, for the bound's sake. Right
        after they have, prompts go even where the bound can't be kept."""
        return self._bound_ns is not None and self._since_ns > 0.0 and not chunk.fits

    def _chunk(
        self, prompts: Sequence[Resident], decoding: Sequence[Resident], step_ns: float
    ) -> Chunk:
        """The chunk that goes when it is the prompts' turn: in a MIXED round where one does a
        decode round's work and the chunk's in less time than two rounds do, or must be measured."""
        head, costs = prompts[0], self._costs
        programs = self._cohorts.prompt_programs(head)
        limit_ns = CHUNK_STEPS * step_ns
        if self._bound_ns is not None:
            # Each cycle of decode rounds is a step of the requests that take turns in it.
            cycle = -(-len(decoding) // self._cohorts.decode_lanes)
            limit_ns = self._bound_ns / cycle - step_ns - self._since_ns
        chunk = self._cut(programs, limit_ns, self._most_tokens(prompts))
        beside = len(decoding)
        mixing = self._cohorts.mixed_programs(head, beside)
        if not mixing or not costs.fresh(chunk.program.index):
            return chunk
        most = min(self._most_tokens(prompts[:1]), mixing[-1].packed_token_capacity - beside)
        if all(costs.line(program.index) is None for program in mixing):
            # Measured where it would be used: costs of other sizes would be a guess.
            tokens = min(chunk.tokens, most)
            return Chunk(smallest(mixing, 1, beside + tokens), tokens, 0.0, fits=chunk.fits)
        mixed = self._cut(mixing, limit_ns + step_ns, most, beside)
        apart = chunk_within(costs, programs, 0.0, least=mixed.tokens, most=mixed.tokens)
        pays = not costs.settled(mixed.program.index) or mixed.ns < step_ns + apart.ns
        return mixed if pays else chunk

    def _cut(
        self, programs: Sequence[ProgramInfo], limit_ns: float, most: int, beside: int = 0
    ) -> Chunk:
        """The chunk of a turn: as much as the limit allows, and not less than a page, since what
        a round takes for itself would be wasted. A bound that was asked for is kept even so."""
        least = min(self._least_tokens, programs[-1].packed_token_capacity - beside)
        costs = self._costs
        if self._bound_ns is not None:
            chunk = chunk_within(costs, programs, limit_ns, least=1, most=most, beside=beside)
            if chunk.fits:
                return chunk
        return chunk_within(costs, programs, limit_ns, least=least, most=most, beside=beside)

    def _most_tokens(self, prompts: Sequence[Resident]) -> int:
        """Tokens of prompts that a round could take, were its time no matter."""
        most = 0
        for prompt in prompts:
            most += prompt.prompt_tokens - prompt.planned_consumed
            if most >= self._chunk_tokens:
                return self._chunk_tokens
        return most

    # ------------------------------------------------------------ turns and what they are charged

    def _decode_turn(self, decoding: Sequence[Resident]) -> PlannedRound | None:
        planned = self._cohorts.decode_round(decoding)
        if planned is not None:
            self._charge(-self._ns(planned) / (1 - self._share))
            self._since_ns = 0.0
            self._in_a_row = min(self._in_a_row, 0) - 1
            self._measure(planned)
        return planned

    def _prompt_turn(self, prompts: Sequence[Resident], tokens: int) -> PlannedRound | None:
        planned = self._cohorts.prompt_round(prompts, tokens)
        if planned is not None:
            self._charge(self._ns(planned) / self._share)
            self._since_ns += self._ns(planned)
            self._in_a_row = max(self._in_a_row, 0) + 1
            self._measure(planned)
        return planned

    def _mixed_turn(
        self, prompt: Resident, decoding: Sequence[Resident], chunk: Chunk, step_ns: float
    ) -> PlannedRound | None:
        planned = self._cohorts.mixed_round(decoding, prompt, chunk.tokens, chunk.program)
        if planned is not None:
            self._charge(max(self._ns(planned) - step_ns, 1.0) / self._share)
            self._charge(-step_ns / (1 - self._share))
            self._since_ns = 0.0
            self._in_a_row = 0
            self._measure(planned)
        return planned

    def _charge(self, ns: float) -> None:
        """Charges prompts (positive) or running outputs (negative). A claim that couldn't be
        used, for want of pages or for the bound's sake, doesn't grow."""
        ahead = min(self._lead_ns, 0.0) if ns > 0.0 else max(self._lead_ns, 0.0)
        self._lead_ns = ahead + ns

    def _measure(self, planned: PlannedRound) -> None:
        """The next choice waits for the round's completion where its cost isn't known."""
        if not self._costs.fresh(planned.program.index):
            self._measuring = planned.program

    def _ns(self, planned: PlannedRound) -> float:
        """What a round is predicted to take, at least a nanosecond, so that turns change."""
        predicted = self._costs.predict_ns(planned.program.index, planned.packed_tokens)
        return max(predicted or 0.0, 1.0)
