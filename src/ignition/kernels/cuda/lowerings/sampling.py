"""Lowerings of the launches that sample and score tokens.

Chunks and blocks are the same for every vocabulary and capacity: chunks because a row's sum of
exponentials is folded from them, blocks so that there are few cubins. Programs with a row to
themselves are at most as many as multiprocessors, because each takes all registers of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from helios.errors import ContractError
from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda import sampling as kernels
from ignition.kernels.cuda.launches import At, CatalogueLaunch, Counters, CudaKernel, Scratch
from ignition.kernels.cuda.lowerings.building import (
    Typed,
    integers,
    rows_of,
    small_kernel,
    words,
)
from ignition.kernels.cuda.request_words import SAMPLING_WORDS, STATE_WORDS


@dataclass(frozen=True)
class Blocks:
    """`chunk` logits a scanning program, of which at most `chunks` are folded; `row` logits and
    `words` of a mask that a program with a row to itself looks at at once, and `listed` tokens
    that it may list. Powers of two."""

    chunk: int = 2048
    chunks: int = 128
    row: int = 8192
    words: int = 2048
    listed: int = 4096


_BLOCKS: Final = Blocks()
_CHUNK_WARPS: Final = 4
_ROW_WARPS: Final = 16
_LIKELIEST: Final = 32


def sample(launch: CatalogueLaunch, blocks: Blocks = _BLOCKS) -> tuple[CudaKernel, ...]:
    """Greedy lanes are done after the first launch; what draws, after the second."""
    return _scan_sample(launch, blocks), _finish_sample(launch, blocks)


def sample_processed(launch: CatalogueLaunch, blocks: Blocks = _BLOCKS) -> tuple[CudaKernel, ...]:
    """As `sample`; the second launch has programs that report the likeliest tokens, too."""
    return _scan_sample(launch, blocks), _finish_sample(launch, blocks)


def score(launch: CatalogueLaunch, blocks: Blocks = _BLOCKS) -> tuple[CudaKernel, ...]:
    """One launch, whose sums are those of `sample`."""
    return (_scan_score(launch, blocks),)


def score_ranked(launch: CatalogueLaunch, blocks: Blocks = _BLOCKS) -> tuple[CudaKernel, ...]:
    """As `score`; the second launch reports the likeliest tokens."""
    capacity = launch.integers["capacity"]
    programs = min(capacity, launch.architecture.processors)
    arguments = (
        words("rows", "target", "wanted", "top_tokens")
        | _floats("logits", "top_logprobs")
        | _extents(launch)
        | _scratch(capacity, "results", pb.DTYPE_I64, 2)
        | _scratch(programs, "listed", pb.DTYPE_I32, blocks.listed)
        | _scratch(programs, "likeliest", pb.DTYPE_I32, _LIKELIEST)
    )
    constants = {"BLOCK": blocks.row, "LIST": blocks.listed}
    finish = _kernel(launch, kernels.finish_score, (programs,), arguments, constants, _ROW_WARPS)
    return _scan_score(launch, blocks), finish


def _scan_sample(launch: CatalogueLaunch, blocks: Blocks) -> CudaKernel:
    capacity = launch.integers["capacity"]
    chunks = _chunks(launch, blocks)
    arguments = (
        words("rows", "slot", "state", "tokens")
        | _given(launch, "lane", "sampling", "grammar_mask")
        | _floats("logits", "logprobs")
        | _extents(launch)
        | _slots(launch, "state", "sampling")
        | _scratch(capacity, "bests", pb.DTYPE_I64, chunks)
        | _scratch(capacity, "sums", pb.DTYPE_F32, chunks)
        | _scratch(capacity, "results", pb.DTYPE_I64, 2)
        | _scratch(capacity, "work", pb.DTYPE_I32)
        | {"arrivals": ("*i32", Counters(capacity)), **integers(chunks=chunks)}
    )
    constants = _flags(launch, "lane", "grammar_mask") | {
        "PROCESSED": "sampling" in launch.operands,
        "CHUNK": blocks.chunk,
        "CHUNKS": blocks.chunks,
    }
    grid = (chunks, capacity)
    return _kernel(launch, kernels.scan_sample, grid, arguments, constants, _CHUNK_WARPS)


def _finish_sample(launch: CatalogueLaunch, blocks: Blocks) -> CudaKernel:
    capacity, vocab = launch.integers["capacity"], launch.integers["vocab"]
    processed = "sampling" in launch.operands
    programs = min(capacity * (2 if processed else 1), launch.architecture.processors)
    arguments = (
        words("rows", "slot", "state", "tokens")
        | _given(launch, "lane", "query_length", "sampling", "token_counts", "output_counts")
        | _given(launch, "token_mask", "grammar_mask", "top_tokens")
        | _floats("logits", "logprobs")
        | _given(launch, "top_logprobs", kind="*fp32")
        | _extents(launch)
        | _slots(launch, "state", "sampling", "token_counts", "output_counts", "token_mask")
        | _scratch(capacity, "results", pb.DTYPE_I64, 2)
        | _scratch(capacity, "work", pb.DTYPE_I32)
        | _scratch(programs, "listed", pb.DTYPE_I32, blocks.listed)
    )
    unused: Typed = ("*i32", At("rows"))
    arguments |= {"likeliest": unused, "allowed": unused, "processed": ("*fp32", At("rows"))}
    if processed:
        arguments |= (
            _scratch(programs, "likeliest", pb.DTYPE_I32, _LIKELIEST)
            | _scratch(programs, "allowed", pb.DTYPE_I32, _mask_words(vocab))
            | _scratch(programs, "processed", pb.DTYPE_F32, vocab)
        )
    constants = _flags(launch, "lane", "query_length", "grammar_mask") | {
        "PROCESSED": processed,
        "BLOCK": blocks.row,
        "LIST": blocks.listed,
        "WORDS": blocks.words,
    }
    return _kernel(launch, kernels.finish_sample, (programs,), arguments, constants, _ROW_WARPS)


def _scan_score(launch: CatalogueLaunch, blocks: Blocks) -> CudaKernel:
    capacity = launch.integers["capacity"]
    chunks = _chunks(launch, blocks)
    ranked = "rank" in launch.operands
    arguments = (
        words("rows", "target")
        | _given(launch, "rank")
        | _floats("logits", "out")
        | _extents(launch)
        | _scratch(capacity, "bests", pb.DTYPE_I64, chunks)
        | _scratch(capacity, "sums", pb.DTYPE_F32, chunks)
        | {"arrivals": ("*i32", Counters(capacity)), **integers(chunks=chunks)}
        | {"befores": ("*i32", At("rows")), "results": ("*i64", At("rows"))}
    )
    if ranked:
        arguments |= _scratch(capacity, "befores", pb.DTYPE_I32, chunks)
        arguments |= _scratch(capacity, "results", pb.DTYPE_I64, 2)
    constants = {"RANKED": ranked, "CHUNK": blocks.chunk, "CHUNKS": blocks.chunks}
    grid = (chunks, capacity)
    return _kernel(launch, kernels.scan_score, grid, arguments, constants, _CHUNK_WARPS)


def _chunks(launch: CatalogueLaunch, blocks: Blocks) -> int:
    """Chunks of a row. Raises `ContractError` where they are more than are folded."""
    vocab = launch.integers["vocab"]
    chunks = -(-vocab // blocks.chunk)
    if chunks > blocks.chunks:
        raise ContractError(
            f"a vocabulary of {vocab} tokens, of at most {blocks.chunk * blocks.chunks}",
            where=f"{launch.kernel} on a cuda target",
            remedy="Prepare a model with a smaller vocabulary",
        )
    return chunks


def _mask_words(vocab: int) -> int:
    return -(-vocab // 32)


def _flags(launch: CatalogueLaunch, *operands: str) -> dict[str, int]:
    """A constant for each optional operand that says whether it is there."""
    names = {"grammar_mask": "GRAMMAR"}
    return {names.get(name, name.upper()): name in launch.operands for name in operands}


def _given(launch: CatalogueLaunch, *operands: str, kind: str = "*i32") -> dict[str, Typed]:
    """Operands that may be absent; the kernel knows when they are and leaves them alone."""
    return {name: (kind, At(name if name in launch.operands else "rows")) for name in operands}


def _floats(*operands: str) -> dict[str, Typed]:
    return {name: ("*fp32", At(name)) for name in operands}


def _extents(launch: CatalogueLaunch) -> dict[str, Typed]:
    return integers(**{name: launch.integers[name] for name in ("capacity", "vocab", "stride")})


def _slots(launch: CatalogueLaunch, *operands: str) -> dict[str, Typed]:
    """How many slots each table has; 0 where it is absent."""
    vocab = launch.integers["vocab"]
    widths = {
        "state": STATE_WORDS.value,
        "sampling": SAMPLING_WORDS.value,
        **dict.fromkeys(("token_counts", "output_counts"), vocab),
        "token_mask": _mask_words(vocab),
    }
    return {
        f"{name}_slots": rows_of(name, widths[name]) if name in launch.operands else ("i32", 0)
        for name in operands
    }


def _scratch(rows: int, role: str, dtype: pb.DType, *columns: int) -> dict[str, Typed]:
    kinds = {pb.DTYPE_I32: "*i32", pb.DTYPE_I64: "*i64", pb.DTYPE_F32: "*fp32"}
    return {role: (kinds[dtype], Scratch(role, dtype, (rows, *columns)))}


def _kernel(
    launch: CatalogueLaunch,
    function: Any,
    grid: tuple[int, ...],
    arguments: Mapping[str, Typed],
    constants: Mapping[str, int | bool],
    warps: int,
) -> CudaKernel:
    """Rows that begin at multiples of 16 are read in 16-byte pieces. Which they are belongs to the
    head's output, so that all kernels that read it add in the same order."""
    extents = ("vocab", "stride")
    aligned = all(launch.integers[name] % 16 == 0 for name in extents)
    multiples = frozenset(extents) if aligned else frozenset()
    return small_kernel(
        function, grid, arguments, constants, warps=warps, multiples_of_16=multiples
    )
