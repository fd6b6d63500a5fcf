"""Random stored matrices for tests: any storage, finite scales, otherwise arbitrary bits."""

from __future__ import annotations

import numpy as np

from ignition.preparation.packing import CODE_ROWS, Storage
from ignition.preparation.stored_matrix import StoredMatrix

# Byte offsets of the f16 scales inside a block.
_SCALES = {Storage.Q8_0: (0,), Storage.Q4_0: (0,), Storage.Q4_1: (0, 2), Storage.Q6_K: (208,)}


def random_matrix(storage: Storage, outputs: int, width: int, seed: int) -> StoredMatrix:
    """A matrix of shape [outputs, width] with values of about unit size."""
    random = np.random.default_rng(seed)
    if storage in (Storage.F32, Storage.F16):
        element = np.float32 if storage is Storage.F32 else np.float16
        values = random.standard_normal((outputs, width)).astype(element)
        return StoredMatrix.from_elements(storage, values)
    if storage is Storage.BF16:
        bits = random.standard_normal((outputs, width)).astype(np.float32).view(np.uint32) >> 16
        return StoredMatrix.from_elements(storage, bits.astype(np.uint16))
    if storage in CODE_ROWS:
        codes = random.integers(0, 256, (outputs, width), np.uint8)
        codes[codes & 0x7F == 0x7F] = 0  # NaN, as e4m3
        scales = (random.standard_normal((outputs, storage.row_scales(width))) * 0.1).astype("<f4")
        rows = np.concatenate([codes, scales.view(np.uint8)], axis=1)
        return StoredMatrix(storage, (outputs, width), rows)
    shape = (outputs, width // storage.block_elements, storage.block_nbytes)
    blocks = random.integers(0, 256, shape, np.uint8)
    for offset in _SCALES[storage]:
        scales = (random.standard_normal(shape[:2]) * 0.1).astype("<f2")
        blocks[..., offset : offset + 2] = scales[..., None].view(np.uint8)
    return StoredMatrix(storage, (outputs, width), blocks.reshape(outputs, -1))
