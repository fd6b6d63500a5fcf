"""A request on its way through the scheduler, and a resident: a request that holds a slot.

Data and the small facts that follow from it; who moves a request on is `Scheduler`. A preempted
request becomes resident again as a new `Resident` whose prompt holds the tokens emitted so far.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import field
from enum import Enum, auto

from helios.dataclass import dataclass
from helios.runtime.rounds import Alternatives, SamplingParameters
from helios.scheduler.cache import Hold
from helios.scheduler.ranking import Rank


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for. `request_id` is unique among the scheduler's live requests.

    `priority` is lower where it is more urgent. `host_stops` says that the host decides after each
    token whether the request goes on (`Scheduler.stop`); `score_prompt` that the logprob of each
    prompt token but the first is wanted, `prompt_top_logprobs` how many of the likeliest tokens in
    its place; `prefix_reuse` whether it may begin from pages and snapshots of earlier requests and
    leave its own to later ones. `sibling_of` is the id of the live request that has the same prompt
    and computes it for both. A `constrained` request's tokens follow a grammar, of which the host
    knows what comes next only once it knows the last token. `boundaries` are counts of first prompt
    tokens, ascending, at which other prompts may part from this one.
    """

    request_id: int
    prompt: tuple[int, ...]
    output_limit: int
    sampling: SamplingParameters
    eos_ids: tuple[int, ...] = ()
    priority: int = 0
    host_stops: bool = False
    score_prompt: bool = False
    prefix_reuse: bool = True
    sibling_of: int | None = None
    prompt_top_logprobs: int = 0
    constrained: bool = False
    boundaries: tuple[int, ...] = ()

    @property
    def stored_tokens(self) -> int:
        """Tokens that the cache holds at most: the last output token is never consumed."""
        return len(self.prompt) + self.output_limit - 1


def _nothing_packed() -> array[int]:
    return array("i")


@dataclass(slots=True, eq=False)
class Progress:
    """A live request: `tokens` are its prompt, what it has emitted, and what it will have because
    its grammar leaves no choice; `emitted` and `forced` count the latter two. `rank` says whom it
    precedes, and preemption keeps it. `reused` are the prompt tokens that its first admission found
    in the cache, −1 before it. `scores` are the logprobs of tokens that aren't sampled, as far as
    they are wanted and known; `ranks` and `likeliest`, of programs that report them, go with them.
    Who shares the place of a live request `rides`: it takes none of its own in the queue. `packed`
    is the prompt once more, as it is staged."""

    request: Request
    rank: Rank
    tokens: list[int]
    emitted: int = 0
    reused: int = -1
    scores: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    likeliest: list[Alternatives] = field(default_factory=list)
    rides: bool = False
    forced: int = 0
    packed: array[int] = field(default_factory=_nothing_packed)

    def chunk(self, start: int, end: int) -> Sequence[int]:
        """Those of its tokens for a lane that consumes them."""
        return (self.packed if end <= len(self.packed) else self.tokens)[start:end]

    @property
    def is_pending(self) -> bool:
        """Whether it takes a place in the queue: it has never been admitted, and doesn't ride."""
        return self.reused < 0 and not self.rides

    @property
    def scores_prompt(self) -> bool:
        """Whether the prompt is still to be scored. Once a token has been emitted its scores have
        been delivered."""
        return self.request.score_prompt and not self.emitted

    @property
    def wants_scores(self) -> bool:
        """Whether tokens are to be scored: the prompt's, or those that are forced."""
        return self.forced > 0 or self.scores_prompt

    @property
    def needed_from(self) -> int:
        """The first token that must be computed, whatever is cached: the last one, which is
        consumed for a token to follow, or the one before the first that is scored."""
        return 0 if self.scores_prompt else len(self.tokens) - 1 - self.forced

    @property
    def scored_top_logprobs(self) -> int:
        """How many of the likeliest tokens are wanted in the place of each that is scored."""
        request = self.request
        return request.prompt_top_logprobs if self.scores_prompt else request.sampling.top_logprobs


class Phase(Enum):
    """What a resident's next round is."""

    ADMITTED = auto()  # an INITIALIZE, RESTORE or RESUME round
    PREFILLING = auto()  # the next chunk of its prompt
    SAVING = auto()  # a SNAPSHOT round, before the last token of its prompt
    DECODING = auto()  # one more token
    EXHAUSTED = auto()  # none: its submitted rounds reach its output limit
    ENDING = auto()  # none: it holds its slot and pages to its last fence


class Ending(Enum):
    """Why a resident is in phase ENDING."""

    FINISHED = auto()
    STOPPED = auto()
    CANCELLED = auto()
    FAILED = auto()
    PREEMPTED = auto()


@dataclass(slots=True, eq=False)
class Resident:
    """A request that holds a slot.

    `planned_consumed` and `planned_emitted` say where the submitted rounds lead, `consumed` where
    the completed ones have; `prompt_tokens` is the count of tokens to prefill, `chunk_end` where
    the next chunk ends at the latest. `ended_on_device` is set once the device has said that the
    lane is finished; `undecided` while the host decides whether the last token ends its request.

    `pages` is the page list that rounds are given, `covered` the tokens that it can hold. Those in
    `private`, by their place in the list, are the resident's own; the others are published and
    held, or were given back (`first_page` is the first that is still read). `saved` is the longest
    endpoint that a snapshot of the request has or will have; `due_endpoint` and `due_row` describe
    the one that waits for its round, −1 without one. One that `refreshes` has been given forced
    tokens: its state is written anew where it stands, and then it consumes them as a prompt's.
    """

    progress: Progress
    slot: int
    generation: int
    prompt_tokens: int
    planned_emitted: int
    hold: Hold
    chunk_end: int
    phase: Phase = Phase.ADMITTED
    ending: Ending | None = None
    planned_consumed: int = 0
    consumed: int = 0
    pages: list[int] = field(default_factory=list)
    private: dict[int, int] = field(default_factory=dict)
    covered: int = 0
    first_page: int = 0
    saved: int = 0
    due_endpoint: int = -1
    due_row: int = -1
    rounds_in_flight: int = 0
    last_turn: int = 0
    ended_on_device: bool = False
    undecided: bool = False
    refreshes: bool = False
    # Read for each lane of each round.
    top_logprobs: int = field(init=False)

    def __post_init__(self) -> None:
        self.top_logprobs = self.progress.request.sampling.top_logprobs

    @property
    def rank(self) -> Rank:
        """Whom the request precedes; see `helios.scheduler.ranking`."""
        return self.progress.rank

    @property
    def begins_at(self) -> int:
        """The endpoint of the state that it is given next."""
        return self.planned_consumed if self.refreshes else self.hold.endpoint

    @property
    def priority(self) -> int:
        """The request's, lower where it is more urgent."""
        return self.progress.request.priority
