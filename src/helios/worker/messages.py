"""What a client and the model worker say to each other; what HTTP processes ask each other beside
that is in `peer_messages`.

Wire types only (msgspec structs, sent as msgpack batches: one list of messages a round and
direction). The in-process engine passes the same objects without encoding them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from helios.frontend.grammar.faults import GrammarFault
from helios.process_usage import ProcessUsage
from helios.runtime.rounds import SamplingParameters

# `TokensEvent.finish` holds its values.
from helios.scheduler.events import Finish as Finish
from helios.scheduler.tier_counts import TierCounts
from helios.worker.histograms import HistogramCounts

if TYPE_CHECKING:
    from helios.frontend.prepare import PreparedRequest


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """A request's sampling parameters, all defaults resolved: `SamplingParameters` on the wire."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_tokens: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    stop_ids: tuple[int, ...] = ()
    top_logprobs: int = 0

    @staticmethod
    def of(parameters: SamplingParameters) -> Sampling:
        """What carries these parameters."""
        return Sampling(*(getattr(parameters, name) for name in _SAMPLING))

    def parameters(self) -> SamplingParameters:
        """What it carries."""
        return SamplingParameters(**{name: getattr(self, name) for name in _SAMPLING})


_SAMPLING: Final = Sampling.__struct_fields__


# ---------------------------------------------------------------- client to worker


class Stops(msgspec.Struct, frozen=True, array_like=True):
    """What ends a request besides its EOS ids: strings in its text, sequences of its tokens.
    `continues` says that its text goes on from the prompt's."""

    strings: tuple[str, ...]
    sequences: tuple[tuple[int, ...], ...]
    continues: bool


class Submit(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A prepared request. `request_id` is unique for the client's connection; `priority` is lower
    where it is more urgent; `score_prompt` asks for logprobs of the prompt's tokens,
    `prompt_top_logprobs` for so many of the likeliest in each one's place. `observed` says that the
    client wants each token's id, `timed` when each was completed, too. `sibling_of` is the id of
    the request, sent before, that has the same prompt. `grammar` is what its output follows, as
    llguidance reads it; free output has an empty one. `boundaries` are counts of first tokens at
    which other prompts may part from this one."""

    request_id: int
    prompt_tokens: list[int]
    output_limit: int
    sampling: Sampling
    eos_ids: list[int]
    priority: int = 0
    score_prompt: bool = False
    stops: Stops | None = None
    observed: bool = False
    timed: bool = False
    sibling_of: int | None = None
    prompt_top_logprobs: int = 0
    grammar: str = ""
    boundaries: list[int] = []

    @staticmethod
    def of(
        request_id: int,
        prepared: PreparedRequest,
        *,
        observed: bool = False,
        timed: bool = False,
        sibling_of: int | None = None,
        score_prompt: bool = True,
    ) -> Submit:
        """What carries a prepared request; without `score_prompt` its prompt isn't scored, whatever
        it says."""
        stops = prepared.stops
        likeliest = prepared.prompt_logprobs if score_prompt else None
        return Submit(
            request_id,
            prepared.prompt_tokens,
            prepared.output_limit,
            Sampling.of(prepared.sampling),
            list(prepared.eos_ids),
            prepared.priority,
            likeliest is not None,
            stops=Stops(stops.strings, stops.sequences, prepared.continues) if stops else None,
            observed=observed,
            timed=timed,
            sibling_of=sibling_of,
            prompt_top_logprobs=likeliest or 0,
            grammar=prepared.grammar or "",
            boundaries=list(prepared.prefix_boundaries),
        )


class Cancel(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """The client no longer wants a request. Unknown ids are ignored."""

    request_id: int


class ReadStatistics(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """Asks for one `Statistics` message."""


class ResetPrefixCache(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """Asks that nothing computed so far be reused, second tiers included; `PrefixCacheReset` says
    that it is so."""


class ReadProgress(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """Asks for one `Progress` message."""


class Shutdown(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """Finish what is in flight on the device, then end."""


# ---------------------------------------------------------------- worker to client


class WorkerReady(msgspec.Struct, frozen=True, tag=16, array_like=True):
    """Start-up is over: the model can serve, with the capacities that resulted. `startup_ms`
    gives each phase's duration, `tiers_nbytes` what each part of the second tier may keep. Times
    in events count from `origin_ns` on time.monotonic_ns's clock; `event_capacity` is what each
    response's queue holds at the least, `threads` how many compute. `cache_nbytes` are of all
    `ranks` together."""

    kernel_path: str
    request_slots: int
    speculative_width: int
    cache_pages: int
    cache_nbytes: int
    page_tokens: int
    max_context_tokens: int
    queue_capacity: int
    startup_ms: dict[str, float]
    snapshots: int = 0
    prefix_reuse: bool = True
    tiers_nbytes: dict[str, int] = {}
    origin_ns: int = 0
    event_capacity: int = 0
    threads: int = 0
    ranks: int = 1


class WorkerFailed(msgspec.Struct, frozen=True, tag=17, array_like=True):
    """The worker can't serve (any more); `error` is the class of its error
    (`errors.family_name`)."""

    error: str
    message: str


class TokensEvent(msgspec.Struct, frozen=True, tag=18, array_like=True):
    """Tokens of a request, in order; `finish` is 0 while it goes on, else a `Finish`.
    `prompt_logprobs` are those of the prompt's tokens from the second on, in the first event of a
    request that asked for them; `prompt_ranks` and `prompt_alternatives` go with them: each token's
    place among all, where the core's programs report it, and the likeliest tokens with their
    logprobs, where some were asked for. `reused_prompt_tokens` counts those that came from the
    prefix cache, the same in all events of an admitted request. `alternatives` are the likeliest
    tokens and their logprobs for each token of a request that asked for some. `completed_ns` is
    when the tokens' completion had been validated, for a timed request."""

    request_id: int
    tokens: Sequence[int]
    logprobs: Sequence[float]
    finish: int
    prompt_logprobs: Sequence[float] = []
    reused_prompt_tokens: int = 0
    alternatives: Sequence[tuple[tuple[int, ...], tuple[float, ...]]] = []
    completed_ns: int = 0
    prompt_ranks: Sequence[int] = []
    prompt_alternatives: Sequence[tuple[tuple[int, ...], tuple[float, ...]]] = []


class RejectedEvent(msgspec.Struct, frozen=True, tag=19, array_like=True):
    """The scheduler didn't admit a request; nothing of it ran."""

    request_id: int
    message: str


class FailedEvent(msgspec.Struct, frozen=True, tag=20, array_like=True):
    """A request ended because execution failed; with a `fault` because its grammar can't be
    followed any further, which is the request's own doing."""

    request_id: int
    message: str
    fault: GrammarFault = GrammarFault.NONE


class ProgramCounts(msgspec.Struct, frozen=True, array_like=True):
    """What a program has done: rounds completed, kernel launches of them, lanes and packed tokens
    that its rounds had of those that they had room for. An operation that consumes no tokens has
    none of both."""

    operation: str
    rounds: int
    launches: int
    lanes: int
    lanes_offered: int
    tokens: int
    tokens_offered: int


class Statistics(msgspec.Struct, frozen=True, tag=21, array_like=True):
    """Counters since start and gauges now, by metric name without prefix. `launches` and
    `rounds` are by operation name; `finished` by finish reason; `tiers` are the second tier's.
    `programs` are by name; `histograms` by metric name; `usage` is the worker process's."""

    counters: dict[str, int]
    gauges: dict[str, float]
    launches: dict[str, int]
    rounds: dict[str, int]
    finished: dict[str, int]
    tiers: dict[str, TierCounts] = {}
    programs: dict[str, ProgramCounts] = {}
    histograms: dict[str, HistogramCounts] = {}
    usage: ProcessUsage = ProcessUsage()


class BooksBroken(msgspec.Struct, frozen=True, tag=22, array_like=True):
    """The scheduler's books don't agree, which is a bug; the worker has logged a dump and goes on.
    `message` says what is wrong."""

    message: str


class PrefixCacheReset(msgspec.Struct, frozen=True, tag=23, array_like=True):
    """Answers `ResetPrefixCache`: requests submitted from now on reuse nothing computed before."""


class Progress(msgspec.Struct, frozen=True, tag=24, array_like=True):
    """Answers `ReadProgress`: whether there is work, and two counts of which one moves while the
    device does: `launches` that it has begun, `rounds` that it has completed."""

    working: bool
    launches: int
    rounds: int


class Taken(msgspec.Struct, frozen=True, tag=25, array_like=True):
    """A request has left the worker's ingress, with its siblings: there is room for another."""

    request_id: int


def cancelled(request_id: int) -> TokensEvent:
    """The last event of a request that was cancelled before it had any."""
    return TokensEvent(request_id, [], [], Finish.CANCELLED)


ToWorker = Submit | Cancel | ReadStatistics | ResetPrefixCache | ReadProgress | Shutdown
FromWorker = (
    WorkerReady
    | WorkerFailed
    | TokensEvent
    | RejectedEvent
    | FailedEvent
    | Statistics
    | BooksBroken
    | PrefixCacheReset
    | Progress
    | Taken
)
