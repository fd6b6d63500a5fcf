"""The op layer of requests: admission, pending tokens, page-table deltas, scores, commit.

Every function records one launch. These kernels read and write the persistent request state and
the completion record; which rows go on is in `selection_ops`, sampling in `sampling_ops`, a model's
arithmetic in `ops`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from helios.schema import execution_pb2 as pb
from ignition.capture.handles import BufferHandle, Rows
from ignition.capture.program import ProgramRecorder


@dataclass(frozen=True)
class Lanes:
    """The lanes of a round: their live number, request slots and generations (i32 each)."""

    rows: Rows
    slot: BufferHandle
    generation: BufferHandle


@dataclass(frozen=True)
class PromptLanes:
    """What a round that consumes several tokens a lane adds: their number, and whether the lane
    samples (i32 each)."""

    query_length: BufferHandle
    sample: BufferHandle


@dataclass(frozen=True)
class ScoredInputs:
    """What a round that scores is told of each packed token: the id whose logprob is wanted, and
    how many of the likeliest (i32 each)."""

    targets: BufferHandle
    wanted: BufferHandle


@dataclass(frozen=True)
class Sampled:
    """A token (i32) and its logprob (f32) for each lane."""

    tokens: BufferHandle
    logprobs: BufferHandle


@dataclass(frozen=True)
class CompletionBuffers:
    """The record that a round leaves for the host; the last four where a program scores."""

    lanes: BufferHandle
    tokens: BufferHandle
    logprobs: BufferHandle
    top_tokens: BufferHandle
    top_logprobs: BufferHandle
    scores: BufferHandle | None = None
    score_ranks: BufferHandle | None = None
    score_top_tokens: BufferHandle | None = None
    score_top_logprobs: BufferHandle | None = None


def scatter_i32(
    program: ProgramRecorder,
    rows: Rows,
    index: BufferHandle,
    value: BufferHandle,
    target: BufferHandle,
) -> None:
    """target[index[i]] = value[i]."""
    program.launch(
        "scatter_i32",
        {"rows": rows.count, "index": index, "value": value, "target": target},
        {"capacity": rows.capacity},
    )


def initialize_requests(
    program: ProgramRecorder,
    rows: Rows,
    values: Mapping[str, BufferHandle],
    state: BufferHandle,
) -> None:
    """Writes each lane's state row from `values`, named as the kernel's operands."""
    program.launch(
        "initialize_requests",
        {"rows": rows.count, **values, "state": state},
        {"capacity": rows.capacity},
    )


def load_pending(
    program: ProgramRecorder, lanes: Lanes, state: BufferHandle
) -> tuple[BufferHandle, BufferHandle]:
    """Token and position of each lane, from device state."""
    capacity = lanes.rows.capacity
    tokens = program.workspace("tokens", pb.DTYPE_I32, (capacity,))
    positions = program.workspace("positions", pb.DTYPE_I32, (capacity,))
    program.launch(
        "load_pending",
        {
            "rows": lanes.rows.count,
            "slot": lanes.slot,
            "generation": lanes.generation,
            "state": state,
            "tokens": tokens,
            "positions": positions,
        },
        {"capacity": capacity},
    )
    return tokens, positions


def set_pending(
    program: ProgramRecorder, lanes: Lanes, token: BufferHandle, state: BufferHandle
) -> None:
    """Each lane's pending token becomes `token` (i32)."""
    program.launch(
        "set_pending",
        {
            "rows": lanes.rows.count,
            "slot": lanes.slot,
            "generation": lanes.generation,
            "token": token,
            "state": state,
        },
        {"capacity": lanes.rows.capacity},
    )


def merge_pending(
    program: ProgramRecorder,
    lanes: Lanes,
    state: BufferHandle,
    rows: Rows,
    decode_lanes: BufferHandle,
    tokens: BufferHandle,
    positions: BufferHandle,
) -> tuple[BufferHandle, BufferHandle]:
    """Token and position of each packed row: from device state for the first `decode_lanes`, a row
    each, from the host's `tokens` and `positions` for the rest."""
    out_tokens = program.workspace("tokens", pb.DTYPE_I32, (rows.capacity,))
    out_positions = program.workspace("positions", pb.DTYPE_I32, (rows.capacity,))
    program.launch(
        "merge_pending",
        {
            "rows": rows.count,
            "decode_lanes": decode_lanes,
            "slot": lanes.slot,
            "generation": lanes.generation,
            "state": state,
            "tokens": tokens,
            "positions": positions,
            "out_tokens": out_tokens,
            "out_positions": out_positions,
        },
        {"capacity": rows.capacity, "lanes": lanes.rows.capacity},
    )
    return out_tokens, out_positions


def score_ranked(
    program: ProgramRecorder,
    rows: Rows,
    inputs: ScoredInputs,
    logits: BufferHandle,
    sampled_tokens: int,
    completion: CompletionBuffers,
    start: int,
) -> None:
    """The logprob of each row's target among the ids that may be sampled, its place among them, and
    the likeliest ones. Rows are packed tokens from `start` on."""
    parts = {
        "out": completion.scores,
        "rank": completion.score_ranks,
        "top_tokens": completion.score_top_tokens,
        "top_logprobs": completion.score_top_logprobs,
    }
    operands = {"rows": rows.count, "logits": logits}
    for name, buffer in (("target", inputs.targets), ("wanted", inputs.wanted), *parts.items()):
        assert buffer is not None  # declared where there are such programs
        operands[name] = buffer.from_byte(4 * start * prod(buffer.shape[1:]))
    program.launch(
        "score_ranked",
        operands,
        {"capacity": rows.capacity, "vocab": sampled_tokens, "stride": logits.shape[-1]},
    )


def commit(
    program: ProgramRecorder,
    lanes: Lanes,
    sampled: Sampled,
    state: BufferHandle,
    completion: CompletionBuffers,
    *,
    prompt: PromptLanes | None = None,
) -> None:
    """Advances each lane's state and writes its completion row."""
    operands = {
        "rows": lanes.rows.count,
        "slot": lanes.slot,
        "generation": lanes.generation,
        "tokens": sampled.tokens,
        "logprobs": sampled.logprobs,
        "state": state,
        "lanes": completion.lanes,
        "out_tokens": completion.tokens,
        "out_logprobs": completion.logprobs,
    }
    if prompt is not None:
        operands["query_length"] = prompt.query_length
        operands["sampled"] = prompt.sample
    program.launch("commit", operands, {"capacity": lanes.rows.capacity})
