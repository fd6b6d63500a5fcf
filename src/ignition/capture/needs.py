"""What an operand must offer, and ways to say it that kernels share; the rules are in `extents`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from helios.kernels.catalogue import MASK_WORD_BITS, REQUEST_STATE_NBYTES
from helios.schema import execution_pb2 as pb
from ignition.capture.handles import dense_nbytes

Attributes = Mapping[str, int]


@dataclass(frozen=True)
class Need:
    """What an operand must offer: `packing`, at least `nbytes` of `dtype` (any where None); with a
    symbolic `leading` count, rows of exactly that size."""

    dtype: pb.DType | None
    nbytes: int
    leading: pb.LeadingCount = pb.LEADING_COUNT_FIXED
    packing: int = pb.PACKING_PLAIN


def i32(*shape: int) -> Need:
    """Elements of that type."""
    return Need(pb.DTYPE_I32, dense_nbytes(pb.DTYPE_I32, shape))


def f32(*shape: int) -> Need:
    """Elements of that type."""
    return Need(pb.DTYPE_F32, dense_nbytes(pb.DTYPE_F32, shape))


def u32(*shape: int) -> Need:
    """Elements of that type."""
    return Need(pb.DTYPE_U32, dense_nbytes(pb.DTYPE_U32, shape))


def of_slots(dtype: pb.DType, columns: int) -> Need:
    """A row of that many elements for each request slot."""
    return Need(dtype, dense_nbytes(dtype, (columns,)), pb.LEADING_COUNT_REQUEST_SLOTS)


def mask_words(vocab: int) -> int:
    """32-bit words of a mask with a bit for each token."""
    return -(-vocab // MASK_WORD_BITS)


STATE: Final = Need(pb.DTYPE_U8, REQUEST_STATE_NBYTES, pb.LEADING_COUNT_REQUEST_SLOTS)
