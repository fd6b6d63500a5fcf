"""What passes between scheduler and runtime: a round to submit and what came back of it.

Data only. The scheduler makes rounds, `helios.runtime.packing` writes them into staging, the
device runs them, `helios.runtime.completions` reads the answer back into these types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from helios.dataclass import dataclass

if TYPE_CHECKING:
    # Only named in types; who plans rounds without images has no use for numpy.
    from numpy.typing import NDArray


class DeviceFinish(IntEnum):
    """Why a lane ended on the device (the completion record's finish column)."""

    RUNNING = 0
    EOS = 1
    LIMIT = 2


class LaneError(IntEnum):
    """A lane's error column: the lane changed no state. IMPOSSIBLE is no device's: a row that says
    what can't be true is read so."""

    IMPOSSIBLE = -1
    NONE = 0
    STALE_GENERATION = 1
    ALREADY_FINISHED = 2


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How a request samples: `seed` of 64 bits, `temperature` 0 is greedy, `top_k` 0 is off, and so
    are a repetition penalty of 1 and the other penalties of 0.

    `logit_bias` has (id, what is added to its logit) pairs; `allowed_tokens` are the only ids that
    may come (None: all); `bad_words` sequences of ids that may not; before `min_tokens` output
    tokens neither end-of-sequence ids may come nor `stop_ids`, which the host ends the request at.
    Of each token the `top_logprobs` likeliest alternatives are reported.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_tokens: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    stop_ids: tuple[int, ...] = ()
    top_logprobs: int = 0

    @property
    def penalises(self) -> bool:
        """Whether a token's logit depends on how often it came before."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def looks_back(self) -> bool:
        """Whether the choice of a token depends on the tokens before it by more than the logits:
        then the device must know them when it takes the request up."""
        return self.penalises or bool(self.bad_words)


@dataclass(frozen=True, slots=True)
class LaneAdmission:
    """What INITIALIZE, RESTORE and RESUME rounds put into a slot's state row. `emitted` counts
    output tokens that a readmitted request already has."""

    sampling: SamplingParameters
    output_limit: int
    emitted: int
    eos_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens copied from a request's own text, for a SPECULATIVE round to verify. They follow the
    first `endpoint` tokens and the pending one, of the request that is its slot's `generation`.
    `masks` are grammar masks, one for each target token from the pending one on; missing ones
    allow everything."""

    tokens: Sequence[int]
    generation: int
    endpoint: int
    masks: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class LaneExtras:
    """What few lanes bring, apart from `LaneWork` so that the others stay light.

    `length` is the number of packed rows where `tokens` don't say it: target tokens of a
    SPECULATIVE lane (exactly, or at most where the device allots them), patches of a VISION one.
    `scored_top_logprobs` is how many of the likeliest tokens are reported at each of a lane's
    `targets`.
    `history` are the request's tokens so far, which its histograms and recent tokens begin with,
    None where nothing looks back at them. A grammar mask has a bit for each token, lowest bit of
    the lowest byte first, 1 where the token is allowed; None allows everything; its bytes are read
    when the round is packed. `feature_indices`
    and `context_indices` have a value for each of `tokens`, −1 where there is no image, or are
    empty; `feature_slot` is −1 for none. `images` are the image layout's tensors by name.
    """

    length: int = 0
    history: Sequence[int] | None = None
    grammar_mask: bytes | memoryview | None = None
    proposal: Proposal | None = None
    feature_indices: Sequence[int] = ()
    context_indices: Sequence[int] = ()
    feature_slot: int = -1
    images: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    scored_top_logprobs: int = 0


class LaneWork(NamedTuple):
    """One lane of a round; a tuple, because one is made for each lane of each round.

    `start` is the position of the first token consumed, and in operations that consume none the
    endpoint that the lane's state has or gets; `tokens` the prompt tokens of this chunk (empty
    where the device or nobody supplies them); `pages` the slot's whole page list so far, which
    the packer compares with what it has uploaded.

    `restore_row` (RESTORE, RESUME) is the snapshot that the state is copied from, −1 for none;
    `snapshot_row` (SNAPSHOT) the one that it is copied to; `pending_token` (RESUME, and programs
    whose pending token is the host's) the token consumed next; `targets` (SCORED_PREFILL) for each
    of `tokens` the id whose logprob is wanted at its position, −1 for none. Rows count snapshots
    from 0; where they lie among the state rows is the packer's to know.
    """

    slot: int
    generation: int
    start: int
    tokens: Sequence[int]
    sample: bool
    pages: Sequence[int]
    admission: LaneAdmission | None = None
    restore_row: int = -1
    snapshot_row: int = -1
    pending_token: int = -1
    targets: Sequence[int] = ()
    extras: LaneExtras | None = None


class Round(NamedTuple):
    """One submission: a program (index into the runtime's program table) and its lanes; a tuple,
    as what follows, because the next launch waits for it to be made.

    In a MIXED round the lanes before the last decode, and the last one is a prompt's chunk.
    `top_logprobs` says for each lane how many alternatives of its tokens its request was admitted
    with; it is empty where none of them wants any."""

    program: int
    lanes: tuple[LaneWork, ...]
    top_logprobs: tuple[int, ...] = ()


class Alternatives(NamedTuple):
    """The likeliest tokens where one was sampled, likeliest first, with their logprobs; the sampled
    one need not be among them."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


class Ranking(NamedTuple):
    """Where the targets of a scored lane stand: the place of each among all tokens, likeliest first
    and from 1 (0 without a target), and the likeliest tokens there if the lane wants some."""

    ranks: tuple[int, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()


NO_RANKING: Final = Ranking()


class LaneCompletion(NamedTuple):
    """What a lane's row of the completion record says; a tuple as `LaneWork`. `consumed` is the
    endpoint after the round; `tokens` and `logprobs` hold the tokens emitted in it; `scores` the
    logprobs of a scored lane's targets, one for each of its tokens (nan without a target),
    `ranking` what else the program says of them;
    `alternatives` has an entry for each emitted token of a lane that wants them; `fault` is what
    can't be true of a row with the error IMPOSSIBLE."""

    slot: int
    generation: int
    consumed: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: DeviceFinish
    error: LaneError
    draft_cursor: int
    model_reserved: int
    scores: tuple[float, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()
    fault: str = ""
    ranking: Ranking = NO_RANKING


class Completion(NamedTuple):
    """A round's answer. `lanes` is empty for operations without a completion record.
    `started_ns` and `completed_ns` say when its program ran, on time.monotonic_ns's clock."""

    sequence: int
    lanes: tuple[LaneCompletion, ...]
    started_ns: int
    completed_ns: int


class InFlight(NamedTuple):
    """A round that was submitted: what reading its answer needs. `lengths` are the tokens of each
    lane, where the record has something for each of them."""

    sequence: int
    program: int
    lanes: int
    lengths: tuple[int, ...]
    top_logprobs: tuple[int, ...]
    scored_top_logprobs: tuple[int, ...]
