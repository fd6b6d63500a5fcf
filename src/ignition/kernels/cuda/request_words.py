"""Where the fields of a request's rows lie, in 32-bit words, for kernels (docs/kernels.md).

State rows and sampling rows are addressed as i32; what is f32 there is read by its bits.
"""

from __future__ import annotations

from typing import Final

import triton.language as tl

from helios.kernels.catalogue import (
    BAD_WORD_CAPACITY,
    BIAS_CAPACITY,
    COMPLETION_LANE_COLUMNS,
    EOS_CAPACITY,
    RECENT_CAPACITY,
    REQUEST_STATE_NBYTES,
    SAMPLING_ROW_NBYTES,
    STOP_CAPACITY,
)

_WORD_NBYTES: Final = 4

# A state row.
STATE_WORDS = tl.constexpr(REQUEST_STATE_NBYTES // _WORD_NBYTES)
PENDING_TOKEN = tl.constexpr(0)
CONSUMED = tl.constexpr(1)
EMITTED = tl.constexpr(2)
OUTPUT_LIMIT = tl.constexpr(3)
GENERATION = tl.constexpr(4)
FINISHED = tl.constexpr(5)
SEED = tl.constexpr(6)
TEMPERATURE = tl.constexpr(8)
TOP_P = tl.constexpr(9)
MIN_P = tl.constexpr(10)
TOP_K = tl.constexpr(11)
REPETITION_PENALTY = tl.constexpr(12)
PRESENCE_PENALTY = tl.constexpr(13)
FREQUENCY_PENALTY = tl.constexpr(14)
MIN_TOKENS = tl.constexpr(15)
EOS_IDS = tl.constexpr(16)
EOS_COUNT = tl.constexpr(EOS_CAPACITY)

# A sampling row: its head, then lists of these lengths.
SAMPLING_WORDS = tl.constexpr(SAMPLING_ROW_NBYTES // _WORD_NBYTES)
HEAD_WORDS = tl.constexpr(16)
TOP_LOGPROBS = tl.constexpr(0)
STOPS = tl.constexpr(1)
BIASES = tl.constexpr(2)
BAD_TOKENS = tl.constexpr(3)
MASKED = tl.constexpr(4)
RECENT = tl.constexpr(16)
RECENT_COUNT = tl.constexpr(RECENT_CAPACITY)
STOP_IDS = tl.constexpr(RECENT.value + RECENT_CAPACITY)
STOP_COUNT = tl.constexpr(STOP_CAPACITY)
BIAS_TOKENS = tl.constexpr(STOP_IDS.value + STOP_CAPACITY)
BIAS_COUNT = tl.constexpr(BIAS_CAPACITY)
BIAS = tl.constexpr(BIAS_TOKENS.value + BIAS_CAPACITY)
BAD_WORDS = tl.constexpr(BIAS.value + BIAS_CAPACITY)
BAD_WORD_COUNT = tl.constexpr(BAD_WORD_CAPACITY)

# A completion lane.
LANE_WORDS = tl.constexpr(COMPLETION_LANE_COLUMNS)
