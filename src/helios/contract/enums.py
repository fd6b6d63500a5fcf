"""Enumerations of the contract. Numbers are the schema's; zero, the unspecified value, is absent
because it selects nothing: decoding refuses it. Used by every layer that reads a contract.
"""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """What a program does."""

    INITIALIZE = 1
    RESTORE = 2
    SNAPSHOT = 3
    PREFILL = 4
    SCORED_PREFILL = 5
    RESUME = 6
    DECODE = 7
    SPECULATIVE = 8
    MIXED = 9
    VISION = 10
    TUNE = 11


class CacheRegionKind(IntEnum):
    """How an attention history is stored."""

    PAGED_KEY_VALUE = 1
    PAGED_LATENT = 2
    SLIDING_WINDOW = 3
    RECURRENT = 4
    CONTINUATION = 5


class ValueSource(IntEnum):
    """What value a binding puts into its destination."""

    SLOT = 1
    GENERATION = 2
    LIVE_ROW_COUNT = 3
    LIVE_TOKEN_COUNT = 4
    QUERY_LENGTH = 5
    SPECULATIVE_PREFIX_LIMIT = 6
    SAMPLING_DECISION = 7
    MIXED_PREFILL_ROW = 8
    PROMPT_TOKEN = 9
    SCORED_TARGET_TOKEN = 10
    PENDING_TOKEN = 11
    PROMPT_POSITION = 12
    IMAGE_FEATURE_INDEX = 13
    IMAGE_CONTEXT_INDEX = 14
    IMAGE_FEATURE_SLOT = 15
    PAGE_TABLE = 16
    LIVE_STATE_ROW = 17
    RESTORE_SOURCE = 18
    SNAPSHOT_DESTINATION = 19
    CONSUMED_TOKENS = 20
    SEED = 21
    TEMPERATURE = 22
    TOP_K = 23
    TOP_P = 24
    MIN_P = 25
    REPETITION_PENALTY = 26
    PRESENCE_PENALTY = 27
    FREQUENCY_PENALTY = 28
    OUTPUT_LIMIT = 29
    EMITTED_TOKENS = 30
    EOS_IDS = 31
    PROMPT_HISTOGRAM = 32
    GRAMMAR_MASK = 33
    PROPOSAL_TOKEN = 34
    PROPOSAL_COUNT = 35
    PROPOSAL_GENERATION = 36
    PROPOSAL_ENDPOINT = 37
    PROPOSAL_GRAMMAR_MASK = 38
    CONSTANT = 39
    IMAGE_TENSOR = 40
    OUTPUT_HISTOGRAM = 41
    RECENT_OUTPUT_TOKEN = 42
    LOGIT_BIAS_TOKEN = 43
    LOGIT_BIAS = 44
    TOKEN_MASK = 45
    BAD_WORD_TOKEN = 46
    MIN_TOKENS = 47
    STOP_TOKEN_ID = 48
    TOP_LOGPROBS = 49
    SCORED_TOP_LOGPROBS = 50


class Indexing(IntEnum):
    """Which elements of its destination a binding writes."""

    SCALAR = 1
    SUBMISSION_ROW = 2
    ACTIVE_ROW = 3
    PHYSICAL_REQUEST_ROW = 4
    PACKED_TOKEN = 5


class AccessMode(IntEnum):
    """How a launch or a graph touches memory."""

    READ = 1
    WRITE = 2
    READ_WRITE = 3

    @property
    def reads(self) -> bool:
        """Whether the old content matters."""
        return self is not AccessMode.WRITE

    @property
    def writes(self) -> bool:
        """Whether the content may change."""
        return self is not AccessMode.READ


class ToolParser(IntEnum):
    """Syntax of tool calls in generated text."""

    NONE = 1
    FUNCTION_TAGS = 2
    ARGUMENT_TAGS = 3
    DSML = 4
    XTML = 5
    ATEM = 6
    TAGGED_JSON = 7
    BARE_JSON = 8
    CALL_LIST_JSON = 9
    CHANNELS = 10
    SECTIONS = 11


class ReasoningParser(IntEnum):
    """Syntax of reasoning in generated text."""

    NONE = 1
    THINK_TAGS = 2
    XTML_THINK = 3
    RECIPIENT_HEADERS = 4
    CHANNELS = 5


class ImagePreparation(IntEnum):
    """How pixels become patches."""

    NONE = 1
    SMART_RESIZE = 2


class ImageLayout(IntEnum):
    """How patches become tokens and positions."""

    NONE = 1
    THREE_ROW_POSITIONS = 2
