"""The geometry that a loaded model exposes to the scheduler: capacities and programs.

Data only; `selection` fills it in after the graphs are chosen.
"""

from __future__ import annotations

from helios.contract.enums import Operation
from helios.dataclass import dataclass
from helios.runtime.sampling_rules import PLAIN, SamplingRules
from helios.runtime.scoring_rules import NOTHING_SCORED, ScoringRules

__all__ = ["Geometry", "Operation", "ProgramInfo"]


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """A selected program: its index is what `Round.program` holds."""

    index: int
    name: str
    operation: Operation
    batch_capacity: int
    draft_tokens: int
    token_capacity: int
    packed_token_capacity: int
    launches: int
    # The graph has inputs that the host knows only from the lane's previous completion, whosever
    # lane it is: a pending token of its own, or tokens copied from the request's history.
    host_fed: bool = False


@dataclass(frozen=True, slots=True)
class HistoryRules:
    """What the cache contract and the graphs' inputs say about reusing attention history.

    `starts_at_pages`: a request can begin at a page boundary with pages alone (INITIALIZE takes
    the consumed endpoint). `restores`: programs RESTORE, SNAPSHOT and RESUME are there.
    `names_endpoint`: SNAPSHOT takes the endpoint as an input, so it may be any token in the last
    written page; otherwise what is saved is the live state, exactly where the lane stands.
    `window_tokens`: pages wholly before the last so many tokens are never read again (0: all are
    read), known only if every paged region is a sliding window. `record_tokens`: tokens of the
    longest record of a compressed region (1 without one).
    """

    starts_at_pages: bool = False
    restores: bool = False
    names_endpoint: bool = False
    window_tokens: int = 0
    record_tokens: int = 1


@dataclass(frozen=True, slots=True)
class Geometry:
    """Capacities after load-time selection. `pages_per_request` bounds a page list;
    `speculative_width` is 0 without speculation; `snapshot_rows` counts the snapshots that there is
    room for, beside the state rows of running requests, `snapshot_nbytes` the bytes of one;
    `cache_nbytes` is what pages and snapshots take, `sampling` says which parameters of a request
    the programs apply, `scoring` what they say of prompts, `grammars` whether they keep a request
    to one."""

    target: str
    kernel_path: str
    request_slots: int
    cache_pages: int
    page_tokens: int
    pages_per_request: int
    max_context_tokens: int
    vocabulary_tokens: int
    input_tokens: int
    frames: int
    programs: tuple[ProgramInfo, ...]
    cache_nbytes: int = 0
    speculative_width: int = 0
    snapshot_rows: int = 0
    snapshot_nbytes: int = 0
    history: HistoryRules = HistoryRules()
    sampling: SamplingRules = PLAIN
    scoring: ScoringRules = NOTHING_SCORED
    grammars: bool = False

    def of(self, operation: Operation) -> tuple[ProgramInfo, ...]:
        """The selected programs of an operation, smallest capacity first."""
        found = [program for program in self.programs if program.operation is operation]
        return tuple(sorted(found, key=lambda p: (p.packed_token_capacity, p.batch_capacity)))
