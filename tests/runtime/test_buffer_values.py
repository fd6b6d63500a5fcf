"""Activation rows of blocks as float32, however a buffer stores them."""

from __future__ import annotations

import numpy as np
import pytest

from helios.runtime.buffer_values import buffer_values
from helios.runtime.device import PlannedBuffer
from helios.runtime.manifest import Buffer, BufferClass, DType, LeadingCount, Packing
from tests.native.packings import Q8_FORMAT, Q8_PAIRS_FORMAT, Q16_FORMAT, decode, encode


@pytest.mark.parametrize(
    ("dtype", "format_", "step"),
    [
        (DType.ACT_Q8, Q8_FORMAT, 1 / 254),
        (DType.ACT_Q16, Q16_FORMAT, 1 / 65024),
        (DType.ACT_Q8_PAIRS, Q8_PAIRS_FORMAT, 1 / 253),
    ],
)
def test_rows_of_blocks_read_as_what_was_written(dtype: DType, format_: int, step: float) -> None:
    values = np.random.default_rng(1).standard_normal((3, 192)).astype(np.float32)
    content = encode(values, format_)
    assert content.shape[1] == dtype.row_nbytes(192)
    buffer = Buffer(
        name="x",
        buffer_class=BufferClass.WORKSPACE,
        dtype=dtype,
        packing=Packing.PLAIN,
        leading=LeadingCount.FIXED,
        shape=(3, 192),
        nbytes=content.nbytes,
        offset=0,
        resource="",
    )
    planned = PlannedBuffer(buffer, (3, 192), content.nbytes)
    found = buffer_values(planned, content.reshape(-1))
    np.testing.assert_allclose(found, decode(content, format_, 192), rtol=1e-6)
    assert np.abs(found - values).max() <= step * np.abs(values).max()
