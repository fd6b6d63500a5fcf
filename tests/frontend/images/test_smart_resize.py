"""Pictures as patches: sizes as the public processors have them, values against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from helios.errors import RequestError
from helios.frontend.images.smart_resize import patches_of, resized
from tests.frontend.images.settings import settings

SMALL = settings()
LARGE = settings(16, 65536, 16777216)


@pytest.mark.clause("FRONT-9")
@pytest.mark.parametrize(
    ("height", "width", "which", "expected"),
    [
        (448, 448, SMALL, (448, 448)),
        (700, 1000, LARGE, (704, 992)),
        (400, 640, LARGE, (384, 640)),  # 12.5 is rounded to even
        (30, 30, SMALL, (56, 56)),  # below the least number of pixels
        (30, 30, LARGE, (256, 256)),
        (8000, 6000, settings(14, 3136, 28 * 28 * 1280), (1148, 840)),
        (28, 5600, settings(14, 3136, 28 * 28 * 100), (28, 3948)),  # no side shrinks to nothing
    ],
)
def test_sizes(height: int, width: int, which: object, expected: tuple[int, int]) -> None:
    assert resized(height, width, which, "image") == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(("height", "width"), [(10, 2001), (2001, 10), (0, 10)])
def test_shapes_without_a_size(height: int, width: int) -> None:
    with pytest.raises(RequestError, match="image"):
        resized(height, width, SMALL, "image")


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_sizes_are_whole_and_within_bounds(height: int, width: int) -> None:
    which = settings(14, 3136, 28 * 28 * 64)
    if max(height, width) > 200 * min(height, width):
        return
    tall, wide = resized(height, width, which, "image")
    assert tall % 28 == wide % 28 == 0
    assert min(tall, wide) >= 28
    # A side of one patch can't be made smaller, whatever the other one is.
    assert tall * wide <= which.max_pixels or min(tall, wide) == 28
    assert tall * wide >= which.min_pixels


@pytest.mark.clause("FRONT-9")
def test_patches_are_the_resized_pictures() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (60, 90, 3), np.uint8)
    which = settings()
    found = patches_of(pixels, which, "image")
    tall, wide = resized(60, 90, which, "image")
    assert (found.rows, found.columns) == (tall // 14, wide // 14)
    picture = np.asarray(
        Image.fromarray(pixels).resize((wide, tall), Image.Resampling.BICUBIC), np.float64
    )
    picture = (picture / 255 - np.asarray(which.mean)) / np.asarray(which.std)
    index = 0
    for block_y in range(found.rows // 2):
        for block_x in range(found.columns // 2):
            for in_y in range(2):
                for in_x in range(2):
                    y, x = (2 * block_y + in_y) * 14, (2 * block_x + in_x) * 14
                    patch = picture[y : y + 14, x : x + 14].transpose(2, 0, 1)
                    row = np.stack([patch, patch], axis=1).reshape(-1)
                    np.testing.assert_allclose(found.values[index], row, atol=1e-5)
                    index += 1
    assert index == len(found.values)
