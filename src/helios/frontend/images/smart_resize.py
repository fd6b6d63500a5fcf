"""Image preparation SMART_RESIZE: sides of whole patches within a number of pixels, then patches.

The picture keeps about its shape: sides become the nearest multiples of patch and merge size
(halves to even), scaled as far as the least or the largest number of pixels asks. Source: the
processors of public vision models that resize to whole patches ("smart resize").
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.contract.model import ImageSettings
from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.images.pixels import Pixels

_TEMPORAL: Final = 2  # pictures that make one patch; a still one is repeated
_RATIO_LIMIT: Final = 200


@dataclass(frozen=True, slots=True)
class Patches:
    """A picture as patches. `values` is [rows * columns, 3 * 2 * patch * patch]: blocks of
    `merge` x `merge` patches in reading order, patches in reading order within each; a row holds
    channel, time, y, x. `rows` and `columns` count patches, both multiples of the merge size."""

    values: NDArray[np.float32]
    rows: int
    columns: int


def resized(height: int, width: int, settings: ImageSettings, where: str) -> tuple[int, int]:
    """The height and width that a picture gets. Raises RequestError naming `where` for shapes
    that have none."""
    factor = settings.patch_size * settings.merge_size
    if min(height, width) < 1 or max(height, width) > _RATIO_LIMIT * min(height, width):
        raise RequestError(
            f"is {width} x {height}, and sides may differ {_RATIO_LIMIT}-fold",
            where=where,
            remedy="Cut it",
        )
    # Python rounds halves to even, as the processors do.
    tall = max(factor, factor * round(height / factor))
    wide = max(factor, factor * round(width / factor))
    if tall * wide > settings.max_pixels:
        scale = math.sqrt(height * width / settings.max_pixels)
        tall = max(factor, factor * math.floor(height / scale / factor))
        wide = max(factor, factor * math.floor(width / scale / factor))
    elif tall * wide < settings.min_pixels:
        scale = math.sqrt(settings.min_pixels / (height * width))
        tall = factor * math.ceil(height * scale / factor)
        wide = factor * math.ceil(width * scale / factor)
    return tall, wide


def patches_of(pixels: Pixels, settings: ImageSettings, where: str) -> Patches:
    """A picture's patches, resized (bicubic, with antialiasing) and normalised."""
    from PIL import Image

    tall, wide = resized(pixels.shape[0], pixels.shape[1], settings, where)
    image = Image.fromarray(pixels).resize((wide, tall), Image.Resampling.BICUBIC)
    values: NDArray[np.float32] = np.asarray(image, np.float32) / np.float32(255)
    if settings.mean:
        values -= np.asarray(settings.mean, np.float32)
        values /= np.asarray(settings.std, np.float32)
    patch, merge = settings.patch_size, settings.merge_size
    rows, columns = tall // patch, wide // patch
    blocks = values.reshape(rows // merge, merge, patch, columns // merge, merge, patch, 3)
    # block row, block column, row in it, column in it, channel, y, x
    ordered = blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3, 1, patch, patch)
    repeated = np.repeat(ordered, _TEMPORAL, axis=2)
    return Patches(
        np.ascontiguousarray(repeated.reshape(rows * columns, -1), np.float32), rows, columns
    )
