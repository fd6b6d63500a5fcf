"""Where the host's values of a paged text model go: each staged destination, its elements, the
source that fills it, and which operation takes which.

Data only, shared by all recipes. `contract` makes bindings of it, `text_frame` INPUT buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from helios.kernels.catalogue import (
    BAD_WORD_CAPACITY,
    BIAS_CAPACITY,
    EOS_CAPACITY,
    RECENT_CAPACITY,
    STOP_CAPACITY,
)
from helios.schema import contract_pb2 as pb
from helios.schema import execution_pb2 as execution

_UNUSED_ID: Final = -1
# Elements a row of what has one for each word of a mask.
MASK_WORDS: Final = 0


@dataclass(frozen=True)
class Destination:
    """A staged destination: its elements and what value fills it. `per_row` is the number of
    elements a row, or MASK_WORDS; rows are those of `indexing`, a scalar has one."""

    name: str
    dtype: execution.DType
    source: pb.ValueSource
    indexing: pb.Indexing
    per_row: int = 1
    padding: int = 0

    def binding(self) -> pb.ValueBinding:
        """The binding that fills it."""
        return pb.ValueBinding(
            destination=self.name,
            source=self.source,
            indexing=self.indexing,
            padding=self.padding,
        )


def _scalar(name: str, source: pb.ValueSource) -> Destination:
    return Destination(name, execution.DTYPE_I32, source, pb.INDEXING_SCALAR)


def _lane(
    name: str,
    source: pb.ValueSource,
    dtype: execution.DType = execution.DTYPE_I32,
    per_row: int = 1,
    padding: int = 0,
) -> Destination:
    return Destination(name, dtype, source, pb.INDEXING_ACTIVE_ROW, per_row, padding)


def _token(name: str, source: pb.ValueSource) -> Destination:
    return Destination(name, execution.DTYPE_I32, source, pb.INDEXING_PACKED_TOKEN)


LIVE_ROWS: Final = _scalar("live_rows", pb.VALUE_SOURCE_LIVE_ROW_COUNT)
LIVE_TOKENS: Final = _scalar("live_tokens", pb.VALUE_SOURCE_LIVE_TOKEN_COUNT)
DECODE_LANES: Final = _scalar("decode_lanes", pb.VALUE_SOURCE_MIXED_PREFILL_ROW)
SLOT: Final = _lane("slot", pb.VALUE_SOURCE_SLOT)
GENERATION: Final = _lane("generation", pb.VALUE_SOURCE_GENERATION)
QUERY_LENGTH: Final = _lane("query_length", pb.VALUE_SOURCE_QUERY_LENGTH)
SAMPLE: Final = _lane("sample", pb.VALUE_SOURCE_SAMPLING_DECISION)
TOKENS: Final = _token("tokens", pb.VALUE_SOURCE_PROMPT_TOKEN)
POSITIONS: Final = _token("positions", pb.VALUE_SOURCE_PROMPT_POSITION)
TOKEN_SLOT: Final = _token("token_slot", pb.VALUE_SOURCE_SLOT)
TARGETS: Final = _token("targets", pb.VALUE_SOURCE_SCORED_TARGET_TOKEN)
SCORED_TOP_LOGPROBS: Final = _token("scored_top_logprobs", pb.VALUE_SOURCE_SCORED_TOP_LOGPROBS)
ENDPOINT: Final = _lane("consumed", pb.VALUE_SOURCE_CONSUMED_TOKENS)
RESTORE_ROW: Final = _lane("restore_row", pb.VALUE_SOURCE_RESTORE_SOURCE)
SNAPSHOT_ROW: Final = _lane("snapshot_row", pb.VALUE_SOURCE_SNAPSHOT_DESTINATION)
PENDING_TOKEN: Final = _lane("pending_token", pb.VALUE_SOURCE_PENDING_TOKEN)
GRAMMAR_MASK: Final = _lane(
    "grammar_mask", pb.VALUE_SOURCE_GRAMMAR_MASK, execution.DTYPE_U32, MASK_WORDS
)

# What an admitted request brings; the names are those of `initialize_requests`' operands. A row's
# unused end-of-sequence ids are padding too.
ADMISSION: Final = (
    ENDPOINT,
    _lane("emitted", pb.VALUE_SOURCE_EMITTED_TOKENS),
    _lane("output_limit", pb.VALUE_SOURCE_OUTPUT_LIMIT),
    _lane("seed", pb.VALUE_SOURCE_SEED, execution.DTYPE_U32, 2),
    _lane("temperature", pb.VALUE_SOURCE_TEMPERATURE, execution.DTYPE_F32),
    _lane("top_k", pb.VALUE_SOURCE_TOP_K),
    _lane("top_p", pb.VALUE_SOURCE_TOP_P, execution.DTYPE_F32),
    _lane("min_p", pb.VALUE_SOURCE_MIN_P, execution.DTYPE_F32),
    _lane("eos_ids", pb.VALUE_SOURCE_EOS_IDS, per_row=EOS_CAPACITY, padding=_UNUSED_ID),
)
# What an admitted request brings for the processing of its logits; the names are those of
# `initialize_sampling`'s operands.
SAMPLING: Final = (
    _lane("repetition_penalty", pb.VALUE_SOURCE_REPETITION_PENALTY, execution.DTYPE_F32),
    _lane("presence_penalty", pb.VALUE_SOURCE_PRESENCE_PENALTY, execution.DTYPE_F32),
    _lane("frequency_penalty", pb.VALUE_SOURCE_FREQUENCY_PENALTY, execution.DTYPE_F32),
    _lane("min_tokens", pb.VALUE_SOURCE_MIN_TOKENS),
    _lane("top_logprobs", pb.VALUE_SOURCE_TOP_LOGPROBS),
    _lane("stop_ids", pb.VALUE_SOURCE_STOP_TOKEN_ID, per_row=STOP_CAPACITY, padding=_UNUSED_ID),
    _lane(
        "bias_tokens", pb.VALUE_SOURCE_LOGIT_BIAS_TOKEN, per_row=BIAS_CAPACITY, padding=_UNUSED_ID
    ),
    _lane("bias", pb.VALUE_SOURCE_LOGIT_BIAS, execution.DTYPE_F32, BIAS_CAPACITY),
    _lane("bad_words", pb.VALUE_SOURCE_BAD_WORD_TOKEN, per_row=BAD_WORD_CAPACITY),
    _lane(
        "recent",
        pb.VALUE_SOURCE_RECENT_OUTPUT_TOKEN,
        per_row=RECENT_CAPACITY,
        padding=_UNUSED_ID,
    ),
    _lane("mask", pb.VALUE_SOURCE_TOKEN_MASK, execution.DTYPE_U32, MASK_WORDS),
)
# What goes to a table of all slots instead, as deltas: the buffer and the source.
HISTOGRAMS: Final[Mapping[str, pb.ValueSource]] = {
    "token_counts": pb.VALUE_SOURCE_PROMPT_HISTOGRAM,
    "output_counts": pb.VALUE_SOURCE_OUTPUT_HISTOGRAM,
}
_STAGED: Final = (
    LIVE_ROWS,
    LIVE_TOKENS,
    SLOT,
    GENERATION,
    QUERY_LENGTH,
    SAMPLE,
    TOKENS,
    POSITIONS,
    TOKEN_SLOT,
    *ADMISSION,
    DECODE_LANES,
    TARGETS,
    SCORED_TOP_LOGPROBS,
    RESTORE_ROW,
    SNAPSHOT_ROW,
    PENDING_TOKEN,
    *SAMPLING,
    GRAMMAR_MASK,
)
_LANES: Final = (LIVE_ROWS, SLOT, GENERATION)
_PROMPT: Final = (
    LIVE_ROWS,
    LIVE_TOKENS,
    SLOT,
    GENERATION,
    QUERY_LENGTH,
    SAMPLE,
    TOKENS,
    POSITIONS,
    TOKEN_SLOT,
    GRAMMAR_MASK,
)
# A pending token that the host feeds is bound apart from these (GraphContract.pending_token).
BY_OPERATION: Final[Mapping[int, tuple[Destination, ...]]] = {
    pb.OPERATION_INITIALIZE: (*_LANES, *ADMISSION, *SAMPLING),
    pb.OPERATION_RESTORE: (*_LANES, *ADMISSION, *SAMPLING, RESTORE_ROW),
    pb.OPERATION_SNAPSHOT: (LIVE_ROWS, SLOT, ENDPOINT, SNAPSHOT_ROW),
    pb.OPERATION_PREFILL: _PROMPT,
    pb.OPERATION_SCORED_PREFILL: (*_PROMPT, TARGETS, SCORED_TOP_LOGPROBS),
    pb.OPERATION_RESUME: (*_LANES, *ADMISSION, *SAMPLING, RESTORE_ROW),
    pb.OPERATION_DECODE: (*_LANES, GRAMMAR_MASK),
    pb.OPERATION_MIXED: (*_PROMPT, DECODE_LANES),
}
HOST_PENDING: Final = frozenset({pb.OPERATION_RESUME})
# Operations that take up a request.
ADMITTING: Final = frozenset({pb.OPERATION_INITIALIZE, pb.OPERATION_RESTORE, pb.OPERATION_RESUME})


def staged(operations: Iterable[int]) -> tuple[Destination, ...]:
    """Every destination that one of these operations takes, in an order that never changes."""
    taken = {d for operation in operations for d in BY_OPERATION[operation]}
    if HOST_PENDING & set(operations):
        taken.add(PENDING_TOKEN)
    return tuple(d for d in _STAGED if d in taken)
