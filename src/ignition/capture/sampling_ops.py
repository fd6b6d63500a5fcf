"""The op layer of sampling: what a slot keeps for it, the choice of tokens, what they change.

Every function records one launch. `request_ops` has the rest of a request's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helios.schema import execution_pb2 as pb
from ignition.capture.handles import BufferHandle, Rows
from ignition.capture.program import ProgramRecorder
from ignition.capture.request_ops import CompletionBuffers, Lanes, PromptLanes, Sampled
from ignition.capture.selection_ops import Selection


@dataclass(frozen=True)
class SamplingState:
    """What request slots keep for sampling: state rows and sampling rows (u8), how often each
    token is in prompt and output and in the output alone (i32), which may come (u32 words)."""

    requests: BufferHandle
    rows: BufferHandle
    token_counts: BufferHandle
    output_counts: BufferHandle
    token_mask: BufferHandle

    @property
    def vocabulary_tokens(self) -> int:
        """Ids below it may be sampled."""
        return self.token_counts.shape[-1]


def initialize_sampling(
    program: ProgramRecorder,
    rows: Rows,
    values: Mapping[str, BufferHandle],
    state: SamplingState,
) -> None:
    """Writes each lane's sampling row from `values`, named as the kernel's operands, and clears
    its counts where they will be looked at."""
    program.launch(
        "initialize_sampling",
        {
            "rows": rows.count,
            **values,
            "state": state.requests,
            "sampling": state.rows,
            "token_counts": state.token_counts,
            "output_counts": state.output_counts,
            "token_mask": state.token_mask,
        },
        {"capacity": rows.capacity, "vocab": state.vocabulary_tokens},
    )


def sample(
    program: ProgramRecorder,
    lanes: Lanes,
    state: SamplingState,
    logits: BufferHandle,
    completion: CompletionBuffers,
    *,
    grammar_mask: BufferHandle | None = None,
    selection: Selection | None = None,
    prompt: PromptLanes | None = None,
) -> Sampled:
    """Samples an id from each row of `logits` (f32 [rows, vocabulary]), and reports the likeliest
    ones where they are wanted. Rows are lanes, or the lanes of `selection`. `grammar_mask` (u32
    words) says for each lane which ids may come now."""
    capacity = lanes.rows.capacity
    tokens = program.workspace("sampled_tokens", pb.DTYPE_I32, (capacity,))
    logprobs = program.workspace("sampled_logprobs", pb.DTYPE_F32, (capacity,))
    operands = {
        "rows": lanes.rows.count if selection is None else selection.rows.count,
        "slot": lanes.slot,
        "state": state.requests,
        "sampling": state.rows,
        "token_counts": state.token_counts,
        "output_counts": state.output_counts,
        "token_mask": state.token_mask,
        "logits": logits,
        "tokens": tokens,
        "logprobs": logprobs,
        "top_tokens": completion.top_tokens,
        "top_logprobs": completion.top_logprobs,
    }
    if grammar_mask is not None:
        operands["grammar_mask"] = grammar_mask
    if selection is not None:
        operands["lane"] = selection.lane
    if prompt is not None:
        operands["query_length"] = prompt.query_length
    attributes = {
        "capacity": capacity,
        "vocab": state.vocabulary_tokens,
        "stride": logits.shape[-1],
    }
    program.launch("sample_processed", operands, attributes)
    return Sampled(tokens, logprobs)


def count_sampled(
    program: ProgramRecorder,
    lanes: Lanes,
    sampled: Sampled,
    state: SamplingState,
    *,
    prompt: PromptLanes | None = None,
) -> None:
    """Adds the sampled tokens to the counts and recent tokens of the lanes that run; the state is
    still that of before the round's commit."""
    operands = {
        "rows": lanes.rows.count,
        "slot": lanes.slot,
        "generation": lanes.generation,
        "tokens": sampled.tokens,
        "state": state.requests,
        "sampling": state.rows,
        "token_counts": state.token_counts,
        "output_counts": state.output_counts,
    }
    if prompt is not None:
        operands["sampled"] = prompt.sample
    program.launch(
        "count_sampled",
        operands,
        {"capacity": lanes.rows.capacity, "vocab": state.vocabulary_tokens},
    )
