"""Lowerings of the launches on what a slot keeps for sampling."""

from __future__ import annotations

from typing import Final

from helios.kernels.catalogue import MASK_WORD_BITS, REQUEST_STATE_NBYTES, SAMPLING_ROW_NBYTES
from ignition.kernels.cuda import sampling_rows as kernels
from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.lowerings.building import (
    WORD_NBYTES,
    Typed,
    capacity,
    integers,
    rows_of,
    small_kernel,
    words,
)

_LANES: Final = 32
# Words of a block of counts or of a mask, and counts of a part of `initialize_sampling`.
_WORDS: Final = 1024
_COUNTS_A_PART: Final = 32_768
_WARPS: Final = 4


def count_sampled(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A thread a lane."""
    arguments = {
        **words(
            "rows", "slot", "generation", "sampled", "tokens", "state", "sampling",
            "token_counts", "output_counts",
        ),
        **slot_counts(launch),
    }  # fmt: skip
    programs = -(-launch.integers["capacity"] // _LANES)
    constants = {"BLOCK": _LANES, "SAMPLED": "sampled" in launch.operands}
    return (small_kernel(kernels.count_sampled, (programs,), arguments, constants),)


def initialize_sampling(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """Several programs a lane, for the vocabularies of its counts."""
    vocab = launch.integers["vocab"]
    arguments = {
        **words(
            "rows", "slot", "repetition_penalty", "presence_penalty", "frequency_penalty",
            "min_tokens", "top_logprobs", "stop_ids", "bias_tokens", "bias", "bad_words",
            "recent", "mask", "state", "sampling", "token_counts", "output_counts", "token_mask",
        ),
        **slot_counts(launch),
        "mask_slots": rows_of("token_mask", -(-vocab // MASK_WORD_BITS)),
    }  # fmt: skip
    grid = (-(-vocab // _COUNTS_A_PART), launch.integers["capacity"])
    constants = {"BLOCK": _WORDS}
    return (small_kernel(kernels.initialize_sampling, grid, arguments, constants, warps=_WARPS),)


def slot_counts(launch: CatalogueLaunch) -> dict[str, Typed]:
    """Capacity, vocabulary, and how many slots each buffer has rows for."""
    vocab = launch.integers["vocab"]
    return {
        **capacity(launch),
        **integers(vocab=vocab),
        "slots": rows_of("state", REQUEST_STATE_NBYTES // WORD_NBYTES),
        "sampling_slots": rows_of("sampling", SAMPLING_ROW_NBYTES // WORD_NBYTES),
        "token_slots": rows_of("token_counts", vocab),
        "output_slots": rows_of("output_counts", vocab),
    }
