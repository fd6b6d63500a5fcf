"""Lowerings of the launches that sample and score tokens.

Chunks and blocks are the same for every vocabulary and capacity: chunks because a row's sum of
exponentials is folded from them, blocks so that there are few cubins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from helios.errors import ContractError
from helios.kernels.catalogue import SAMPLING_ROW_NBYTES
from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda import sampling as kernels
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import (
    Argument,
    At,
    CatalogueLaunch,
    Counters,
    CudaKernel,
    RowsOf,
    Scratch,
)


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
_ROW_WARPS: Final = 16
_LIKELIEST: Final = 32

_STATE_NBYTES: Final = 128
_TYPES: Final[dict[str, str]] = {
    **dict.fromkeys(("logits", "logprobs", "top_logprobs", "out", "sums", "processed"), "*fp32"),
    **dict.fromkeys(("bests", "results"), "*i64"),
    **dict.fromkeys(("capacity", "vocab", "stride", "chunks"), "i32"),
}
_OPTIONAL: Final = ("lane", "query_length", "grammar_mask")


def sample(launch: CatalogueLaunch, blocks: Blocks = _BLOCKS) -> tuple[CudaKernel, ...]:
    """Greedy lanes are done after the first launch; what draws, after the second."""
    return _sample(launch, blocks, processed=False)


def sample_processed(launch: CatalogueLaunch, blocks: Blocks = _BLOCKS) -> tuple[CudaKernel, ...]:
    """As `sample`; the second launch has programs that report the likeliest tokens, too."""
    return _sample(launch, blocks, processed=True)


def score(launch: CatalogueLaunch, blocks: Blocks = _BLOCKS) -> tuple[CudaKernel, ...]:
    """One launch, whose sums are those of `sample`."""
    return (_scan_score(launch, blocks, ranked=False),)


def score_ranked(launch: CatalogueLaunch, blocks: Blocks = _BLOCKS) -> tuple[CudaKernel, ...]:
    """As `score`; the second launch reports the likeliest tokens."""
    capacity = launch.integers["capacity"]
    names = ("rows", "target", "wanted", "logits", "top_tokens", "top_logprobs")
    arguments: dict[str, Argument] = {
        **{name: At(name) for name in names},
        "results": _results(capacity),
        "listed": Scratch("listed", pb.DTYPE_I32, (capacity, blocks.listed)),
        "likeliest": Scratch("likeliest", pb.DTYPE_I32, (capacity, _LIKELIEST)),
        **_extents(launch),
    }
    constants = {"BLOCK": blocks.row, "LIST": blocks.listed}
    request = _request(kernels.finish_score, arguments, constants, _ROW_WARPS)
    scan = _scan_score(launch, blocks, ranked=True)
    return scan, CudaKernel(request, (capacity, 1, 1), arguments)


def _sample(launch: CatalogueLaunch, blocks: Blocks, *, processed: bool) -> tuple[CudaKernel, ...]:
    capacity, vocab = launch.integers["capacity"], launch.integers["vocab"]
    chunks = _chunks(vocab, blocks)
    words = -(-vocab // 32)
    present = {name: name in launch.operands for name in _OPTIONAL}

    def at(*names: str) -> dict[str, Argument]:
        return {name: At(name) if name in launch.operands else At("rows") for name in names}

    rows: dict[str, Argument] = {
        "state_rows": RowsOf("state", _STATE_NBYTES),
        "sampling_rows": RowsOf("sampling", SAMPLING_ROW_NBYTES) if processed else 0,
    }
    scan_arguments: dict[str, Argument] = {
        **at("rows", "lane", "slot", "state", "sampling", "grammar_mask", "logits"),
        **at("tokens", "logprobs"),
        "bests": Scratch("bests", pb.DTYPE_I64, (capacity, chunks)),
        "sums": Scratch("sums", pb.DTYPE_F32, (capacity, chunks)),
        "results": _results(capacity),
        "work": Scratch("work", pb.DTYPE_I32, (capacity,)),
        "arrivals": Counters(capacity),
        **_extents(launch),
        "chunks": chunks,
        **rows,
    }
    flags = {
        "LANE": present["lane"],
        "PROCESSED": processed,
        "GRAMMAR": present["grammar_mask"],
    }
    scan = CudaKernel(
        _request(
            kernels.scan_sample, scan_arguments,
            {**flags, "CHUNK": blocks.chunk, "CHUNKS": blocks.chunks}, 4,
        ),
        (chunks, capacity, 1),
        scan_arguments,
    )  # fmt: skip

    def only(role: str, dtype: pb.DType, *shape: int) -> Argument:
        return Scratch(role, dtype, (capacity, *shape)) if processed else At("rows")

    arguments: dict[str, Argument] = {
        **at("rows", "lane", "slot", "query_length", "state", "sampling", "token_counts"),
        **at("output_counts", "token_mask", "grammar_mask", "logits", "tokens", "logprobs"),
        **at("top_tokens", "top_logprobs"),
        "results": _results(capacity),
        "work": Scratch("work", pb.DTYPE_I32, (capacity,)),
        "listed": Scratch("listed", pb.DTYPE_I32, (capacity, 2, blocks.listed)),
        "likeliest": only("likeliest", pb.DTYPE_I32, _LIKELIEST),
        "allowed": only("allowed", pb.DTYPE_I32, words),
        "processed": only("processed", pb.DTYPE_F32, vocab),
        **_extents(launch),
        **rows,
        "token_count_rows": RowsOf("token_counts", 4 * vocab) if processed else 0,
        "output_count_rows": RowsOf("output_counts", 4 * vocab) if processed else 0,
        "token_mask_rows": RowsOf("token_mask", 4 * words) if processed else 0,
    }
    constants = {
        **flags,
        "QUERY_LENGTH": present["query_length"],
        "BLOCK": blocks.row,
        "LIST": blocks.listed,
        "WORDS": blocks.words,
    }
    request = _request(kernels.finish_sample, arguments, constants, _ROW_WARPS)
    return scan, CudaKernel(request, (capacity, 2 if processed else 1, 1), arguments)


def _scan_score(launch: CatalogueLaunch, blocks: Blocks, *, ranked: bool) -> CudaKernel:
    capacity = launch.integers["capacity"]
    chunks = _chunks(launch.integers["vocab"], blocks)
    arguments: dict[str, Argument] = {
        **{name: At(name) for name in ("rows", "target", "logits", "out")},
        "rank": At("rank" if ranked else "rows"),
        "bests": Scratch("bests", pb.DTYPE_I64, (capacity, chunks)),
        "sums": Scratch("sums", pb.DTYPE_F32, (capacity, chunks)),
        "befores": Scratch("befores", pb.DTYPE_I32, (capacity, chunks)) if ranked else At("rows"),
        "results": _results(capacity) if ranked else At("rows"),
        "arrivals": Counters(capacity),
        **_extents(launch),
        "chunks": chunks,
    }
    constants = {"RANKED": ranked, "CHUNK": blocks.chunk, "CHUNKS": blocks.chunks}
    request = _request(kernels.scan_score, arguments, constants, 4)
    return CudaKernel(request, (chunks, capacity, 1), arguments)


def _chunks(vocab: int, blocks: Blocks) -> int:
    """Chunks of a row. Raises `ContractError` where they are more than are folded."""
    chunks = -(-vocab // blocks.chunk)
    if chunks > blocks.chunks:
        raise ContractError(
            f"a vocabulary of {vocab} tokens, of at most {blocks.chunk * blocks.chunks}",
            where="sampling on a cuda target",
            remedy="Prepare a model with a smaller vocabulary",
        )
    return chunks


def _results(capacity: int) -> Scratch:
    return Scratch("results", pb.DTYPE_I64, (capacity, 2))


def _extents(launch: CatalogueLaunch) -> dict[str, Argument]:
    return {name: launch.integers[name] for name in ("capacity", "vocab", "stride")}


def _request(
    function: object,
    arguments: dict[str, Argument],
    constants: dict[str, int],
    warps: int,
) -> KernelRequest:
    """Counts of rows are i32, pointers i32 unless `_TYPES` says otherwise."""
    scalar = (RowsOf, int)
    types = {
        name: _TYPES.get(name, "i32" if isinstance(value, scalar) else "*i32")
        for name, value in arguments.items()
    }
    return KernelRequest(function, types, constants, num_warps=warps, num_stages=1)
