"""Values of a buffer's bytes, for tests and the oracle: everything floating as float32.

Reads the storage formats of docs/kernels.md that buffers of a host device can have; packed weight
matrices are not among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.errors import ExecutionError
from helios.kernels.catalogue import Q8_BLOCK, Q8_PAIR
from helios.runtime.device import PlannedBuffer
from helios.runtime.manifest import DType, Packing

_PLAIN: dict[DType, Any] = {
    DType.U8: np.uint8,
    DType.I8: np.int8,
    DType.I32: np.int32,
    DType.U32: np.uint32,
    DType.I64: np.int64,
    DType.U64: np.uint64,
    DType.F32: np.float32,
}


def buffer_values(planned: PlannedBuffer, content: NDArray[np.uint8]) -> NDArray[Any]:
    """A copy in the buffer's shape: floating and ACT_* formats as float32, integers as they are.
    Raises ExecutionError for a packed weight."""
    dtype, shape = planned.buffer.dtype, planned.shape
    if planned.buffer.packing is not Packing.PLAIN:
        raise ExecutionError(
            f"{planned.buffer.packing.name} weights can't be read back",
            where=planned.buffer.name,
        )
    if dtype in _PLAIN:
        values: NDArray[Any] = content.view(_PLAIN[dtype]).reshape(shape).copy()
        return values
    if dtype is DType.F16:
        return content.view(np.float16).astype(np.float32).reshape(shape)
    if dtype is DType.BF16:
        wide = content.view(np.uint16).astype(np.uint32) << np.uint32(16)
        return wide.view(np.float32).reshape(shape)
    return _quantised_rows(dtype, content, shape)


def _quantised_rows(
    dtype: DType, content: NDArray[np.uint8], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    width = shape[-1]
    rows = content.reshape(-1, dtype.row_nbytes(width))
    if dtype is DType.ACT_Q8_PAIRS:
        return _pair_rows(rows, width).reshape(shape)
    planes = 1 if dtype is DType.ACT_Q8 else 2
    codes = rows[:, :width].view(np.int8).astype(np.float32)
    if planes == 2:
        codes = codes * 256 + rows[:, width : 2 * width].view(np.int8)
    scale_at = planes * width
    scales = np.ascontiguousarray(rows[:, scale_at : scale_at + 4 * (width // Q8_BLOCK)])
    blocks = codes.reshape(len(rows), -1, Q8_BLOCK) * scales.view(np.float32)[:, :, None]
    return blocks.reshape(shape).astype(np.float32)


def _pair_rows(rows: NDArray[np.uint8], width: int) -> NDArray[np.float32]:
    pairs = width // Q8_PAIR
    # In a pair, four of the first block and four of the second come in turn.
    codes = rows[:, :width].view(np.int8).reshape(len(rows), pairs, -1, 2, 4).swapaxes(2, 3)
    integers_at = width + 4 * pairs
    scales = np.ascontiguousarray(rows[:, width:integers_at]).view(np.float32)
    shares = np.ascontiguousarray(rows[:, integers_at : integers_at + 4 * pairs]).view(np.int16)
    of_block = np.repeat(scales / np.float32(32768), 2, axis=1) * shares.astype(np.float32)
    blocks = codes.reshape(len(rows), 2 * pairs, -1).astype(np.float32) * of_block[:, :, None]
    return np.asarray(blocks, np.float32)
