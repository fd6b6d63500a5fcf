"""Image layout THREE_ROW_POSITIONS: where pictures' features stand in a prompt, and which position
every token has.

A template writes one feature id for a picture; the prompt gets one for each of its features. Text
has the same position in all three rows (time, height, width); a picture's features share their
time and count rows and columns from where the picture starts; text goes on after the largest.
Source: multimodal rotary positions (M-RoPE).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helios.contract.model import ImageSettings
from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.images.smart_resize import Patches

# Names of the tensors that programs bind.
PATCHES = "patches"
PATCH_POSITIONS = "patch_positions"
FEATURE_COUNT = "feature_count"
POSITIONS = "positions"


@dataclass(frozen=True, slots=True)
class ImagePrompt:
    """A prompt with pictures. `feature_indices` has for each token the number of its feature,
    counted over all pictures, or -1; `positions` is [tokens, 3]; `next_position` is the one of the
    first output token. `spans` are the parts, from a token up to another, that no chunk may cut.
    `tensors` has each picture's inputs to the vision program by name."""

    tokens: list[int]
    feature_indices: list[int]
    positions: NDArray[np.int32]
    next_position: int
    spans: tuple[tuple[int, int], ...]
    tensors: tuple[dict[str, NDArray[np.float32] | NDArray[np.int32]], ...]


def lay_out(
    tokens: Sequence[int], images: Sequence[Patches], settings: ImageSettings
) -> ImagePrompt:
    """The prompt with its pictures in the places that the template gave them. Raises RequestError
    where the template has more places than there are pictures, or less."""
    features = frozenset(settings.feature_ids)
    places = [index for index, token in enumerate(tokens) if token in features]
    if len(places) != len(images):
        raise RequestError(
            f"the prompt has places for {len(places)} images, and there are {len(images)}",
            where="messages",
            remedy="Send images as image_url parts of user messages",
        )
    laid: list[int] = []
    indices: list[int] = []
    rows: list[NDArray[np.int32]] = []
    ends: list[tuple[int, int]] = []
    position = count = done = 0
    for place, image in zip(places, images, strict=True):
        text = tokens[done:place]
        laid += text
        indices += [-1] * len(text)
        rows.append(_text(position, len(text)))
        position += len(text)
        tall, wide = _merged(image, settings)
        begin = len(laid)
        laid += [tokens[place]] * (tall * wide)
        indices += range(count, count + tall * wide)
        rows.append(_picture(position, tall, wide))
        ends.append((begin, len(laid)))
        position += max(tall, wide)
        count += tall * wide
        done = place + 1
    rest = tokens[done:]
    laid += rest
    indices += [-1] * len(rest)
    rows.append(_text(position, len(rest)))
    return ImagePrompt(
        laid,
        indices,
        np.concatenate(rows),
        position + len(rest),
        tuple(_widened(span, laid, settings) for span in ends),
        tuple(_tensors(image, settings) for image in images),
    )


def _merged(image: Patches, settings: ImageSettings) -> tuple[int, int]:
    return image.rows // settings.merge_size, image.columns // settings.merge_size


def _text(position: int, length: int) -> NDArray[np.int32]:
    steps = np.arange(position, position + length, dtype=np.int32)
    return np.repeat(steps[:, None], 3, axis=1)


def _picture(position: int, tall: int, wide: int) -> NDArray[np.int32]:
    time = np.zeros((tall, wide), np.int32)
    y, x = np.indices((tall, wide), np.int32)
    return np.stack([time, y, x], axis=-1).reshape(-1, 3) + np.int32(position)


def _widened(
    span: tuple[int, int], tokens: Sequence[int], settings: ImageSettings
) -> tuple[int, int]:
    """A span with the tokens beside it that belong to it."""
    begin, end = span
    whole = frozenset(settings.atomic_spans)
    while begin > 0 and tokens[begin - 1] in whole:
        begin -= 1
    while end < len(tokens) and tokens[end] in whole:
        end += 1
    return begin, end


def _tensors(
    image: Patches, settings: ImageSettings
) -> dict[str, NDArray[np.float32] | NDArray[np.int32]]:
    """Patches, each one's row and column, in the same order, and the number of features."""
    merge = settings.merge_size
    y, x = np.indices((image.rows, image.columns), np.int32)
    grid = np.stack([y, x], axis=-1)
    blocks = grid.reshape(image.rows // merge, merge, image.columns // merge, merge, 2)
    ordered = blocks.transpose(0, 2, 1, 3, 4).reshape(-1, 2)
    tall, wide = _merged(image, settings)
    return {
        PATCHES: image.values,
        PATCH_POSITIONS: np.ascontiguousarray(ordered),
        FEATURE_COUNT: np.array([tall * wide], np.int32),
    }
