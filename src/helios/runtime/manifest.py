"""The execution manifest as frozen dataclasses: buffers, programs, transport, completions.

Data only. `manifest_decoder` makes it from the message, `manifest_checks` holds it against the
contract, `memory_plan` gives its buffers their sizes, devices run its programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import Final

from helios.contract.enums import AccessMode, Operation
from helios.dataclass import dataclass
from helios.kernels.catalogue import (
    CODE_ROW_MULTIPLE,
    Q8_BLOCK,
    Q8_PAIR,
    ROWS_Q8_BLOCK,
    TILE_OUTPUTS,
    ActivationFormat,
    KernelSpec,
)


class BufferClass(IntEnum):
    """What a buffer is for, and with that who backs it. Numbers are the schema's."""

    WEIGHT = 1
    CACHE = 2
    STATE = 3
    INPUT = 4
    COMPLETION = 5
    WORKSPACE = 6
    TUNED = 7
    HOST_TABLE = 8
    COUNTER = 9

    @property
    def framed(self) -> bool:
        """Whether each execution frame has its own copy."""
        return self in (BufferClass.INPUT, BufferClass.COMPLETION)


class DType(IntEnum):
    """Element type of a buffer. Numbers are the schema's."""

    U8 = 1
    I8 = 2
    I32 = 3
    U32 = 4
    I64 = 5
    U64 = 6
    F16 = 7
    BF16 = 8
    F32 = 9
    ACT_Q8 = 10
    ACT_Q16 = 11
    ACT_Q8_PAIRS = 12

    def row_nbytes(self, width: int) -> int:
        """Bytes of a row of `width` elements, a multiple of `width_multiple`."""
        form = self.activation_format
        return _ELEMENT_NBYTES[self] * width if form is None else form.row_nbytes(width)

    @property
    def activation_format(self) -> ActivationFormat | None:
        """The format whose rows of blocks this is, None for plain elements."""
        return _ROWS_OF_BLOCKS.get(self)

    @property
    def width_multiple(self) -> int:
        """A row's width is a multiple of this."""
        form = self.activation_format
        return 1 if form is None else form.width_multiple

    @property
    def alignment(self) -> int:
        """Bytes whose multiples an element's address must be."""
        return _ELEMENT_NBYTES.get(self, 4)


_ROWS_OF_BLOCKS = {
    DType.ACT_Q8: ActivationFormat.Q8,
    DType.ACT_Q16: ActivationFormat.Q16,
    DType.ACT_Q8_PAIRS: ActivationFormat.Q8_PAIRS,
}
_ELEMENT_NBYTES = {
    DType.U8: 1,
    DType.I8: 1,
    DType.I32: 4,
    DType.U32: 4,
    DType.I64: 8,
    DType.U64: 8,
    DType.F16: 2,
    DType.BF16: 2,
    DType.F32: 4,
}


class Packing(IntEnum):
    """Byte layout of a weight matrix; docs/kernels.md. Numbers are the schema's."""

    PLAIN = 1
    TILE16_F32 = 2
    TILE16_F16 = 3
    TILE16_BF16 = 4
    TILE16_Q8_0 = 5
    TILE16_Q4_0 = 6
    TILE16_Q4_1 = 7
    TILE16_Q6_K = 8
    TILE16_Q4_PAIRS = 9
    ROWS_BF16 = 10
    ROWS_Q8 = 11
    ROWS_FP8 = 12

    @property
    def width_multiple(self) -> int:
        """A packed row's width is a multiple of this."""
        return _WIDTH_MULTIPLES.get(self, Q8_BLOCK)


_WIDTH_MULTIPLES = {
    Packing.PLAIN: 1,
    Packing.TILE16_F32: 1,
    Packing.TILE16_F16: 1,
    Packing.TILE16_BF16: 2,
    Packing.TILE16_Q4_PAIRS: Q8_PAIR,
    Packing.ROWS_BF16: 8,  # rows of a multiple of 16 bytes
    Packing.ROWS_Q8: CODE_ROW_MULTIPLE,
    Packing.ROWS_FP8: CODE_ROW_MULTIPLE,
}
# Bytes that 32 consecutive inputs of one output take, over all planes of a packing.
_BLOCK_NBYTES = {
    Packing.TILE16_F32: 128,
    Packing.TILE16_F16: 64,
    Packing.TILE16_BF16: 64,
    Packing.TILE16_Q8_0: 34,
    Packing.TILE16_Q4_0: 18,
    Packing.TILE16_Q4_1: 20,
    Packing.TILE16_Q6_K: 36,
    Packing.TILE16_Q4_PAIRS: 20,
}
# And those of what a tile has once, and once for each pair of blocks, up to a multiple of four.
_TILE_NBYTES = {Packing.TILE16_Q4_PAIRS: 4 * TILE_OUTPUTS}
_PAIR_NBYTES = {Packing.TILE16_Q4_PAIRS: 1}


# Those of matrices that lie row by row.
ROW_PACKINGS: Final = frozenset({Packing.ROWS_BF16, Packing.ROWS_Q8, Packing.ROWS_FP8})


def packed_nbytes(packing: Packing, outputs: int, width: int) -> int:
    """Bytes of a packed matrix [outputs, width], the zero rows of a last tile included."""
    if packing in (Packing.ROWS_Q8, Packing.ROWS_FP8):
        scales = row_scales(packing, width) * outputs
        # They take whole rows, too: the last one is filled with zeros.
        return width * (outputs + -(-4 * scales // width))
    if packing is Packing.ROWS_BF16:
        return 2 * outputs * width
    tiles = -(-outputs // TILE_OUTPUTS)
    blocks = TILE_OUTPUTS * width * _BLOCK_NBYTES[packing] // Q8_BLOCK
    flags = -(-(width // Q8_PAIR) // 4) * 4 * _PAIR_NBYTES.get(packing, 0)
    return tiles * (blocks + flags + _TILE_NBYTES.get(packing, 0))


def row_scales(packing: int, width: int) -> int:
    """Scales that a row of `width` codes has, of ROWS_Q8 or ROWS_FP8."""
    return -(-width // ROWS_Q8_BLOCK) if packing == Packing.ROWS_Q8 else 1


class LeadingCount(IntEnum):
    """Which count the runtime puts before a buffer's shape. Numbers are the schema's."""

    FIXED = 1
    REQUEST_SLOTS = 2
    CACHE_PAGES = 3
    SNAPSHOT_ROWS = 4


@dataclass(frozen=True, slots=True)
class Buffer:
    """One named buffer. `nbytes` is of the whole with a FIXED leading count, else of one row.
    `offset` is in the resource (WEIGHT) or in the arena (WORKSPACE)."""

    name: str
    buffer_class: BufferClass
    dtype: DType
    packing: Packing
    leading: LeadingCount
    shape: tuple[int, ...]
    nbytes: int
    offset: int
    resource: str


@dataclass(frozen=True, slots=True)
class Operand:
    """A launch's use of a buffer: index into `Manifest.buffers`, first byte, access."""

    buffer: int
    byte_offset: int
    access: AccessMode


@dataclass(frozen=True, slots=True)
class CudaTensorMap:
    """A buffer as a row-major matrix that a kernel reads through a tensor map. `box` is (rows,
    columns) of one copy, `swizzle` bytes."""

    buffer: Operand
    dtype: DType
    columns: int
    box: tuple[int, int]
    swizzle: int


@dataclass(frozen=True, slots=True)
class CudaRowCount:
    """An i32: the whole rows of `row_nbytes` bytes that a buffer holds from the operand's first
    byte on."""

    buffer: Operand
    row_nbytes: int


class CudaIntegerWidth(IntEnum):
    """Bits of an integer argument."""

    BITS_32 = 32
    BITS_64 = 64


@dataclass(frozen=True, slots=True)
class CudaInteger:
    """An integer argument; 64 bits of 0 stand for the address of what is absent."""

    value: int
    width: CudaIntegerWidth


# An address, an integer, an f32, a tensor map or a count of rows.
CudaArgument = Operand | CudaInteger | float | CudaTensorMap | CudaRowCount


@dataclass(frozen=True, slots=True)
class CudaFunction:
    """A function of a module (a resource's id); `threads` of a CTA, `shared_nbytes` dynamic."""

    module: str
    function: str
    threads: int
    shared_nbytes: int


@dataclass(frozen=True, slots=True)
class CudaNode:
    """One launch of a function: `function` indexes `CudaTarget.functions`. A programmatic one may
    begin before the node before it ends."""

    function: int
    grid: tuple[int, int, int]
    arguments: tuple[CudaArgument, ...]
    programmatic: bool


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """The functions of a cuda manifest; `stage` and `record` index them."""

    functions: tuple[CudaFunction, ...]
    stage: int
    record: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel call. `operands` has an entry for each of the kernel's, None where an optional
    one is absent; attributes are in the catalogue's order. `nodes` do its work on cuda targets;
    none where a neighbour's do it as well."""

    kernel: KernelSpec
    operands: tuple[Operand | None, ...]
    integers: tuple[int, ...]
    floats: tuple[float, ...]
    nodes: tuple[CudaNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A captured program. `inputs` are transport destinations, `completion` a record's name or
    empty; `accesses` name state views; `tuned` pairs (buffer, producing program)."""

    name: str
    operation: Operation
    batch_capacity: int
    draft_tokens: int
    token_capacity: int
    packed_token_capacity: int
    launches: tuple[Launch, ...]
    inputs: tuple[str, ...]
    completion: str
    accesses: tuple[tuple[str, AccessMode], ...]
    tuned: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StagedDestination:
    """A destination that is an INPUT buffer (index into `Manifest.buffers`)."""

    name: str
    buffer: int


@dataclass(frozen=True, slots=True)
class DeltaDestination:
    """A persistent buffer of 32-bit elements that (index, value) pairs are scattered into. All
    fields but the name are indices into `Manifest.buffers`."""

    name: str
    target: int
    count: int
    index: int
    value: int


Destination = StagedDestination | DeltaDestination


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """The COMPLETION buffers (indices) that a program leaves for the host;
    `proposal_confidence`, `scores`, `top_tokens` and `top_logprobs` are None where no program
    reports them, and so are ranks and likeliest tokens of what is scored."""

    name: str
    lanes: int
    tokens: int
    logprobs: int
    proposal_confidence: int | None
    scores: int | None = None
    top_tokens: int | None = None
    top_logprobs: int | None = None
    score_ranks: int | None = None
    score_top_tokens: int | None = None
    score_top_logprobs: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The execution manifest of one target; `cuda` is there on cuda targets alone."""

    abi: str
    target: str
    buffers: tuple[Buffer, ...]
    programs: tuple[Program, ...]
    tuning: tuple[Program, ...]
    destinations: Mapping[str, Destination]
    completions: Mapping[str, CompletionRecord]
    workspace_nbytes: int
    cuda: CudaTarget | None = None

    @cached_property
    def buffer_index(self) -> Mapping[str, int]:
        """Index of each buffer by name."""
        return {buffer.name: index for index, buffer in enumerate(self.buffers)}
