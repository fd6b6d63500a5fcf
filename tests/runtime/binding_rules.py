"""Which sources go with which operations, destinations and indexings: the packer's rules, written
down a second time as tables."""

from __future__ import annotations

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import ValueBinding
from helios.runtime.manifest import DType
from tests.runtime.naive_packing import ADMITTING
from tests.runtime.packing_bench import (
    CONTEXT_TOKENS,
    FEATURE_SLOTS,
    INPUT_TOKENS,
    SAMPLED_TOKENS,
    SLOTS,
    SNAPSHOTS,
    Graph,
)

V, Ix = ValueSource, Indexing
ROWS = 12
INTEGERS = (DType.U8, DType.I8, DType.I32, DType.U32, DType.I64, DType.U64)
ROUND = (V.CONSTANT, V.LIVE_ROW_COUNT, V.LIVE_TOKEN_COUNT, V.MIXED_PREFILL_ROW)
TOKEN = (
    V.PROMPT_TOKEN,
    V.SCORED_TARGET_TOKEN,
    V.PROMPT_POSITION,
    V.IMAGE_FEATURE_INDEX,
    V.IMAGE_CONTEXT_INDEX,
)
REAL = (
    V.TEMPERATURE,
    V.TOP_P,
    V.MIN_P,
    V.REPETITION_PENALTY,
    V.PRESENCE_PENALTY,
    V.FREQUENCY_PENALTY,
)
LANE = (
    V.SLOT,
    V.GENERATION,
    V.QUERY_LENGTH,
    V.SPECULATIVE_PREFIX_LIMIT,
    V.SAMPLING_DECISION,
    V.PENDING_TOKEN,
    V.IMAGE_FEATURE_SLOT,
    V.LIVE_STATE_ROW,
    V.RESTORE_SOURCE,
    V.SNAPSHOT_DESTINATION,
    V.CONSUMED_TOKENS,
    V.TOP_K,
    V.OUTPUT_LIMIT,
    V.EMITTED_TOKENS,
    V.MIN_TOKENS,
    V.TOP_LOGPROBS,
    V.SCORED_TOP_LOGPROBS,
    V.PROPOSAL_COUNT,
    V.PROPOSAL_GENERATION,
    V.PROPOSAL_ENDPOINT,
)
HISTOGRAMS = (V.PROMPT_HISTOGRAM, V.OUTPUT_HISTOGRAM)
# What can fill a destination of each kind.
KINDS: dict[str, tuple[ValueSource, ...]] = {
    "integer": (*ROUND, *TOKEN, *LANE),
    "real": (*REAL, V.CONSTANT),
    "seed": (V.SEED,),
    "eos": (V.EOS_IDS,),
    "ids": (V.LOGIT_BIAS_TOKEN, V.STOP_TOKEN_ID, V.RECENT_OUTPUT_TOKEN),
    "biases": (V.LOGIT_BIAS,),
    "words": (V.BAD_WORD_TOKEN,),
    "histogram": HISTOGRAMS,
    "mask": (V.GRAMMAR_MASK, V.PROPOSAL_GRAMMAR_MASK, V.TOKEN_MASK),
    "masks": (V.PROPOSAL_GRAMMAR_MASK,),
    "proposal": (V.PROPOSAL_TOKEN,),
    "tensor": (V.IMAGE_TENSOR,),
    "pages": (V.PAGE_TABLE,),
    "histogram delta": HISTOGRAMS,
}
LISTS = (
    V.LOGIT_BIAS_TOKEN,
    V.LOGIT_BIAS,
    V.STOP_TOKEN_ID,
    V.RECENT_OUTPUT_TOKEN,
    V.BAD_WORD_TOKEN,
    V.TOKEN_MASK,
)
ADMITTED = (
    *REAL,
    *LISTS,
    V.SEED,
    V.EOS_IDS,
    V.TOP_K,
    V.OUTPUT_LIMIT,
    V.EMITTED_TOKENS,
    V.MIN_TOKENS,
    V.TOP_LOGPROBS,
)
PROPOSED = (
    V.SPECULATIVE_PREFIX_LIMIT,
    V.PROPOSAL_TOKEN,
    V.PROPOSAL_COUNT,
    V.PROPOSAL_GENERATION,
    V.PROPOSAL_ENDPOINT,
    V.PROPOSAL_GRAMMAR_MASK,
)
WITH_TOKENS = (Operation.PREFILL, Operation.SCORED_PREFILL, Operation.MIXED)
CONSUMES_PENDING = (Operation.DECODE, Operation.SPECULATIVE, Operation.MIXED, Operation.RESUME)
OPERATIONS = (
    Operation.INITIALIZE,
    Operation.RESTORE,
    Operation.SNAPSHOT,
    Operation.PREFILL,
    Operation.SCORED_PREFILL,
    Operation.RESUME,
    Operation.DECODE,
    Operation.SPECULATIVE,
    Operation.MIXED,
    Operation.VISION,
)
UNSHIFTED = (
    *REAL,
    *LISTS,
    *HISTOGRAMS,
    V.SEED,
    V.EOS_IDS,
    V.PAGE_TABLE,
    V.GRAMMAR_MASK,
    V.PROPOSAL_GRAMMAR_MASK,
)


def brings(operation: Operation, source: ValueSource, kind: str) -> bool:
    """Whether lanes of an operation can have a source for a destination of a kind."""
    if kind == "histogram":
        return operation in ADMITTING
    if source in ADMITTED:
        return operation in ADMITTING
    if source in PROPOSED:
        return operation is Operation.SPECULATIVE
    if source is V.MIXED_PREFILL_ROW:
        return operation is Operation.MIXED
    if source in (V.PROMPT_TOKEN, V.SCORED_TARGET_TOKEN, V.SCORED_TOP_LOGPROBS):
        return operation in WITH_TOKENS
    return source is not V.PENDING_TOKEN or operation in CONSUMES_PENDING


def indexings(source: ValueSource, kind: str, graph: Graph) -> list[Indexing]:
    """Those under which a source can fill a destination of a kind."""
    if kind in ("pages", "histogram delta"):
        return [Ix.PHYSICAL_REQUEST_ROW]
    rows = [Ix.SUBMISSION_ROW, Ix.ACTIVE_ROW, Ix.PHYSICAL_REQUEST_ROW]
    packed = [Ix.PACKED_TOKEN] if graph.packed_tokens else []
    if source in TOKEN:
        return packed
    if source is V.SPECULATIVE_PREFIX_LIMIT:
        return rows
    if source is V.PROPOSAL_GRAMMAR_MASK:
        return packed if kind == "mask" else rows
    if source in ROUND or (source is V.IMAGE_TENSOR and graph.lanes == 1):
        return [Ix.SCALAR, *rows, *packed]
    return [*rows, *packed]


def span(source: ValueSource, graph: Graph, state_rows: int) -> tuple[int, int] | None:
    """Least and largest value of a source, where it is known before any round."""
    lanes = min(graph.lanes, SLOTS)
    return {
        V.SLOT: (0, SLOTS - 1),
        V.LIVE_ROW_COUNT: (1, lanes),
        V.LIVE_TOKEN_COUNT: (0, graph.packed_tokens),
        V.QUERY_LENGTH: (0, graph.packed_tokens),
        V.SPECULATIVE_PREFIX_LIMIT: (1, graph.target_tokens),
        V.SAMPLING_DECISION: (0, 1),
        V.MIXED_PREFILL_ROW: (1, lanes - 1),
        V.PROMPT_TOKEN: (0, INPUT_TOKENS - 1),
        V.SCORED_TARGET_TOKEN: (-1, SAMPLED_TOKENS - 1),
        V.PENDING_TOKEN: (-1, INPUT_TOKENS - 1),
        V.PROMPT_POSITION: (0, CONTEXT_TOKENS - 1),
        V.IMAGE_FEATURE_INDEX: (-1, 0),
        V.IMAGE_CONTEXT_INDEX: (-1, 0),
        V.IMAGE_FEATURE_SLOT: (-1, FEATURE_SLOTS - 1),
        V.LIVE_STATE_ROW: (0, SLOTS * state_rows - 1),
        V.RESTORE_SOURCE: (-1, (SLOTS + SNAPSHOTS) * state_rows - 1),
        V.SNAPSHOT_DESTINATION: (-1, (SLOTS + SNAPSHOTS) * state_rows - 1),
        V.CONSUMED_TOKENS: (0, CONTEXT_TOKENS),
        V.SEED: (0, 2**32 - 1),
        V.OUTPUT_LIMIT: (0, CONTEXT_TOKENS),
        V.EMITTED_TOKENS: (0, CONTEXT_TOKENS),
        V.EOS_IDS: (-1, SAMPLED_TOKENS - 1),
        V.PROMPT_HISTOGRAM: (0, CONTEXT_TOKENS),
        V.OUTPUT_HISTOGRAM: (0, CONTEXT_TOKENS),
        V.MIN_TOKENS: (0, CONTEXT_TOKENS),
        V.TOP_LOGPROBS: (0, 20),
        V.SCORED_TOP_LOGPROBS: (0, 20),
        V.LOGIT_BIAS_TOKEN: (-1, SAMPLED_TOKENS - 1),
        V.STOP_TOKEN_ID: (-1, SAMPLED_TOKENS - 1),
        V.RECENT_OUTPUT_TOKEN: (-1, SAMPLED_TOKENS - 1),
        V.BAD_WORD_TOKEN: (0, SAMPLED_TOKENS - 1),
        V.PROPOSAL_TOKEN: (-1, SAMPLED_TOKENS - 1),
        V.PROPOSAL_COUNT: (0, graph.target_tokens),
        V.PROPOSAL_ENDPOINT: (-1, CONTEXT_TOKENS),
    }.get(source)


def limits(dtype: DType) -> tuple[int, int]:
    bits = {DType.U8: 8, DType.I8: 8, DType.I64: 64, DType.U64: 64}.get(dtype, 32)
    if dtype in (DType.U8, DType.U32, DType.U64):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def fits(binding: ValueBinding, graph: Graph, dtype: DType, state_rows: int) -> bool:
    """Whether a destination holds whatever its source may be; an absent −1 is never shifted."""
    possible = span(binding.source, graph, state_rows)
    if binding.source is V.CONSTANT:
        possible = binding.constant, binding.constant
    if possible is None or dtype is DType.F32:
        return True
    low, high = possible
    if binding.source is not V.CONSTANT and low == -1:
        return fits_all((-1, binding.offset, high + binding.offset), dtype)
    return fits_all((low + binding.offset, high + binding.offset), dtype)


def fits_all(values: tuple[int, ...], dtype: DType) -> bool:
    return all(limits(dtype)[0] <= value <= limits(dtype)[1] for value in values)
