"""The kernel catalogue of `docs/kernels.md` as data.

Holds names and orders only; what a kernel computes is in the native library and, in numpy, in
`helios.runtime.reference`. Ignition records launches against it, the runtime checks manifests
against it. Append-only: a core written once must run for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

Q8_BLOCK: Final = 32
# Two neighbouring blocks, which share what is in floating point.
Q8_PAIR: Final = 2 * Q8_BLOCK
TILE_OUTPUTS: Final = 16
# Gate and up rows alternate in groups of this many where a matrix lies row by row.
ROW_GROUP: Final = 8
# Inputs that share a scale in ROWS_Q8, and what a row's width is a multiple of where it has codes.
ROWS_Q8_BLOCK: Final = 128
CODE_ROW_MULTIPLE: Final = 16
EOS_CAPACITY: Final = 16
REQUEST_STATE_NBYTES: Final = 128
# A row of `sampling_rows`: its size and what its lists hold (docs/kernels.md).
SAMPLING_ROW_NBYTES: Final = 8640
RECENT_CAPACITY: Final = 32
STOP_CAPACITY: Final = 64
BIAS_CAPACITY: Final = 512
BAD_WORD_CAPACITY: Final = 1024
TOP_CAPACITY: Final = 20
MASK_WORD_BITS: Final = 32
COMPLETION_LANE_COLUMNS: Final = 12
# Values that a `tuning` operand can name; what is out of range means 0, the default.
BLOCKINGS: Final = 6


class ActivationFormat(IntEnum):
    """How a row of activations is kept between kernels (`format` attributes)."""

    F32 = 0
    BF16 = 1
    Q8 = 2
    Q16 = 3
    Q8_PAIRS = 4

    def row_nbytes(self, width: int) -> int:
        """Bytes of a row of `width` elements, a multiple of `width_multiple`."""
        if self is ActivationFormat.F32:
            return 4 * width
        if self is ActivationFormat.BF16:
            return 2 * width
        if self is ActivationFormat.Q8_PAIRS:
            return width + 20 * (width // Q8_PAIR)
        planes = 1 if self is ActivationFormat.Q8 else 2
        return planes * width + 8 * (width // Q8_BLOCK)

    @property
    def width_multiple(self) -> int:
        """A row's width is a multiple of this."""
        if self is ActivationFormat.Q8_PAIRS:
            return Q8_PAIR
        return Q8_BLOCK if self >= ActivationFormat.Q8 else 1


@dataclass(frozen=True)
class OperandSpec:
    """One operand: its name and how the kernel touches it ("r", "w", "rw")."""

    name: str
    access: str
    optional: bool = False


@dataclass(frozen=True)
class KernelSpec:
    """A kernel's operands and attributes, in launch order."""

    name: str
    operands: tuple[OperandSpec, ...]
    integers: tuple[str, ...]
    floats: tuple[str, ...] = ()


def _kernel(name: str, operands: str, integers: str, floats: str = "") -> KernelSpec:
    """Parses `"x:r bias:r? out:rw"` into operands; attributes are space-separated names."""
    parsed = []
    for item in operands.split():
        operand, _, access = item.partition(":")
        parsed.append(OperandSpec(operand, access.rstrip("?"), access.endswith("?")))
    return KernelSpec(name, tuple(parsed), tuple(integers.split()), tuple(floats.split()))


_ROPE: Final = (
    "rows:r qkv:rw positions:r slot:r page_table:r inverse_frequency:r q_norm:r? k_norm:r?"
    " k_plane:w v_plane:w",
    "capacity q_heads kv_heads head_dim page_tokens table_pages",
    "epsilon attention_factor",
)
_ATTENTION: Final = (
    "rows:r qkv:r positions:r slot:r page_table:r k_plane:r v_plane:r out:w",
    "capacity q_heads kv_heads head_dim page_tokens table_pages window format",
    "scale",
)

CATALOGUE: Final[tuple[KernelSpec, ...]] = (
    _kernel("scatter_i32", "rows:r index:r value:r target:w", "capacity"),
    _kernel(
        "initialize_requests",
        "rows:r slot:r generation:r consumed:r emitted:r output_limit:r seed:r temperature:r"
        " top_k:r top_p:r min_p:r eos_ids:r state:w",
        "capacity",
    ),
    _kernel("load_pending", "rows:r slot:r generation:r state:r tokens:w positions:w", "capacity"),
    _kernel("embed", "rows:r tokens:r table:r out:w", "capacity vocab width packing", "scale"),
    _kernel("rms_norm", "rows:r x:r weight:r out:w", "capacity width format", "epsilon"),
    _kernel(
        "linear",
        "rows:r x:r weight:r bias:r? out:rw",
        "capacity width outputs packing format accumulate",
    ),
    _kernel(
        "linear_silu_mul",
        "rows:r x:r weight:r out:w",
        "capacity width outputs packing format out_format",
    ),
    _kernel("rope_and_cache", *_ROPE),
    _kernel("attention", *_ATTENTION),
    _kernel(
        "select_last",
        "rows:r query_length:r sample:r x:r selected_rows:w selected_lane:w out:w",
        "capacity packed_capacity width",
    ),
    _kernel(
        "sample",
        "rows:r lane:r? slot:r query_length:r? state:r logits:r tokens:w logprobs:w",
        "capacity vocab stride",
    ),
    _kernel(
        "commit",
        "rows:r slot:r generation:r query_length:r? sampled:r? tokens:r logprobs:r state:rw"
        " lanes:w out_tokens:w out_logprobs:w",
        "capacity",
    ),
    _kernel(
        "linear_tuned",
        "rows:r x:r weight:r bias:r? out:rw tuning:r",
        "capacity width outputs packing format accumulate",
    ),
    _kernel(
        "linear_silu_mul_tuned",
        "rows:r x:r weight:r out:w tuning:r",
        "capacity width outputs packing format out_format",
    ),
    _kernel("tune_linear", "x:w weight:r out:w choice:w", "capacity width outputs packing format"),
    _kernel(
        "tune_linear_silu_mul",
        "x:w weight:r out:w choice:w",
        "capacity width outputs packing format out_format",
    ),
    _kernel("set_pending", "rows:r slot:r generation:r token:r state:rw", "capacity"),
    _kernel(
        "merge_pending",
        "rows:r decode_lanes:r slot:r generation:r state:r tokens:r positions:r out_tokens:w"
        " out_positions:w",
        "capacity lanes",
    ),
    _kernel("slice_rows", "rows:r out:w", "capacity start limit"),
    _kernel("score", "rows:r target:r logits:r out:w", "capacity vocab stride"),
    _kernel(
        "save_page",
        "rows:r slot:r endpoint:r row:r page_table:r plane:r saved:w",
        "capacity page_tokens table_pages elements dtype",
    ),
    _kernel(
        "load_page",
        "rows:r slot:r endpoint:r row:r page_table:r saved:r plane:w",
        "capacity page_tokens table_pages elements dtype",
    ),
    _kernel("copy_rows", "rows:r source:r destination:r buffer:rw", "capacity elements dtype"),
    _kernel(
        "initialize_sampling",
        "rows:r slot:r repetition_penalty:r presence_penalty:r frequency_penalty:r min_tokens:r"
        " top_logprobs:r stop_ids:r bias_tokens:r bias:r bad_words:r recent:r mask:r state:w"
        " sampling:w token_counts:w output_counts:w token_mask:w",
        "capacity vocab",
    ),
    _kernel(
        "sample_processed",
        "rows:r lane:r? slot:r query_length:r? state:r sampling:r token_counts:r output_counts:r"
        " token_mask:r grammar_mask:r? logits:r tokens:w logprobs:w top_tokens:w top_logprobs:w",
        "capacity vocab stride",
    ),
    _kernel(
        "count_sampled",
        "rows:r slot:r generation:r sampled:r? tokens:r state:r sampling:rw token_counts:rw"
        " output_counts:rw",
        "capacity vocab",
    ),
    _kernel(
        "score_ranked",
        "rows:r target:r wanted:r logits:r out:w rank:w top_tokens:w top_logprobs:w",
        "capacity vocab stride",
    ),
    _kernel("rope_and_cache_bf16", *_ROPE),
    _kernel("attention_bf16", *_ATTENTION),
    _kernel(
        "rope_and_cache_f16",
        "rows:r qkv:r positions:r slot:r page_table:r inverse_frequency:r q_norm:r? k_norm:r?"
        " queries:w k_plane:w v_plane:w",
        "capacity q_heads kv_heads head_dim page_tokens table_pages",
        "epsilon attention_factor",
    ),
    _kernel(
        "attention_f16",
        "rows:r queries:r positions:r slot:r lanes:r? query_length:r? page_table:r k_plane:r"
        " v_plane:r out:w",
        "capacity lane_capacity q_heads kv_heads head_dim page_tokens table_pages window format",
        "scale",
    ),
    _kernel(
        "select_attending",
        "rows:r query_length:r sample:r x:r queries:r positions:r slot:r selected_rows:w"
        " selected_lane:w out:w out_queries:w out_positions:w out_slot:w",
        "capacity packed_capacity width elements dtype",
    ),
    _kernel("weigh", "rows:r x:r weight:r out:w squares:w", "capacity width format block blocks"),
    _kernel(
        "linear_weighed",
        "rows:r x:r squares:r weight:r bias:r? out:w",
        "capacity width outputs packing format blocks",
        "epsilon",
    ),
    _kernel(
        "linear_silu_mul_weighed",
        "rows:r x:r squares:r weight:r out:w",
        "capacity width outputs packing format out_format blocks",
        "epsilon",
    ),
)

# What only CUDA targets have; the native library refuses them.
CUDA_ALONE: Final = frozenset(
    {"rope_and_cache_f16", "attention_f16", "weigh", "linear_weighed", "linear_silu_mul_weighed"}
)

# What these write says how fast the machine is, so no reference has the same.
MEASURING: Final = frozenset({"tune_linear", "tune_linear_silu_mul"})

BY_NAME: Final[dict[str, KernelSpec]] = {spec.name: spec for spec in CATALOGUE}
