"""Extents of the kernels between logits and completion record, for `extents`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from helios.kernels.catalogue import (
    BAD_WORD_CAPACITY,
    BIAS_CAPACITY,
    COMPLETION_LANE_COLUMNS,
    RECENT_CAPACITY,
    SAMPLING_ROW_NBYTES,
    STOP_CAPACITY,
    TOP_CAPACITY,
)
from helios.schema import execution_pb2 as pb
from ignition.capture.needs import STATE, Attributes, Need, f32, i32, mask_words, of_slots, u32


def _select_last(a: Attributes) -> dict[str, Need]:
    return {
        **dict.fromkeys(("query_length", "sample", "selected_lane"), i32(a["capacity"])),
        "x": f32(a["packed_capacity"], a["width"]),
        "selected_rows": i32(1),
        "out": f32(a["capacity"], a["width"]),
    }


def _sample(a: Attributes) -> dict[str, Need]:
    return {
        **dict.fromkeys(("lane", "slot", "query_length", "tokens"), i32(a["capacity"])),
        "state": STATE,
        "logits": f32(a["capacity"], a["stride"]),
        "logprobs": f32(a["capacity"]),
    }


def _commit(a: Attributes) -> dict[str, Need]:
    r = a["capacity"]
    return {
        **dict.fromkeys(
            ("slot", "generation", "query_length", "sampled", "tokens", "out_tokens"), i32(r)
        ),
        **dict.fromkeys(("logprobs", "out_logprobs"), f32(r)),
        "state": STATE,
        "lanes": i32(r, COMPLETION_LANE_COLUMNS),
    }


def _score(a: Attributes) -> dict[str, Need]:
    return {
        "target": i32(a["capacity"]),
        "logits": f32(a["capacity"], a["stride"]),
        "out": f32(a["capacity"]),
    }


def _score_ranked(a: Attributes) -> dict[str, Need]:
    return {
        **_score(a),
        **dict.fromkeys(("wanted", "rank"), i32(a["capacity"])),
        "top_tokens": i32(a["capacity"], TOP_CAPACITY),
        "top_logprobs": f32(a["capacity"], TOP_CAPACITY),
    }


def _sampling_rows(a: Attributes) -> dict[str, Need]:
    """What a slot keeps for the processing of its logits."""
    return {
        "state": STATE,
        "sampling": of_slots(pb.DTYPE_U8, SAMPLING_ROW_NBYTES),
        **dict.fromkeys(("token_counts", "output_counts"), of_slots(pb.DTYPE_I32, a["vocab"])),
    }


def _token_mask(a: Attributes) -> Need:
    return of_slots(pb.DTYPE_U32, mask_words(a["vocab"]))


def _initialize_sampling(a: Attributes) -> dict[str, Need]:
    r = a["capacity"]
    penalties = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    return {
        **dict.fromkeys(("slot", "min_tokens", "top_logprobs"), i32(r)),
        **dict.fromkeys(penalties, f32(r)),
        "stop_ids": i32(r, STOP_CAPACITY),
        "bias_tokens": i32(r, BIAS_CAPACITY),
        "bias": f32(r, BIAS_CAPACITY),
        "bad_words": i32(r, BAD_WORD_CAPACITY),
        "recent": i32(r, RECENT_CAPACITY),
        "mask": u32(r, mask_words(a["vocab"])),
        **_sampling_rows(a),
        "token_mask": _token_mask(a),
    }


def _sample_processed(a: Attributes) -> dict[str, Need]:
    return {
        **_sample(a),
        **_sampling_rows(a),
        "token_mask": _token_mask(a),
        "grammar_mask": u32(a["capacity"], mask_words(a["vocab"])),
        "top_tokens": i32(a["capacity"], TOP_CAPACITY),
        "top_logprobs": f32(a["capacity"], TOP_CAPACITY),
    }


def _count_sampled(a: Attributes) -> dict[str, Need]:
    lanes = dict.fromkeys(("slot", "generation", "sampled", "tokens"), i32(a["capacity"]))
    return {**lanes, **_sampling_rows(a)}


SAMPLING_RULES: Final[dict[str, Callable[[Attributes], dict[str, Need]]]] = {
    "select_last": _select_last,
    "sample": _sample,
    "commit": _commit,
    "score": _score,
    "initialize_sampling": _initialize_sampling,
    "sample_processed": _sample_processed,
    "count_sampled": _count_sampled,
    "score_ranked": _score_ranked,
}
