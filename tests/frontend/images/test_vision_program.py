"""A picture's way: from its bytes through preparation, layout and packer into a vision program, and
what a prefill program is told of the prompt that it stands in.

Features are compared with double precision from the pixels on, on both devices.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from helios.errors import ContractError, ExecutionError
from helios.frontend.images.pixels import decode
from helios.frontend.images.smart_resize import Patches, patches_of
from helios.frontend.images.three_rows import POSITIONS, ImagePrompt, lay_out
from helios.runtime.rounds import LaneAdmission, LaneExtras, LaneWork, SamplingParameters
from helios.runtime.selection import refuse_unsupported
from tests.frontend.images.vision_parts import (
    FEATURE,
    FEATURES,
    MERGE,
    PATCH,
    PLACED,
    PREFILL,
    SEEN,
    SLOT,
    VISION,
    WIDTH,
    Eyes,
    SeeingParts,
    seeing_parts,
)

SIZES = [(64, 96), (100, 40), (33, 30)]
GREEDY = LaneAdmission(SamplingParameters(temperature=0.0), 100, 0, ())


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> SeeingParts:
    return seeing_parts(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="module", params=["cpu", "reference"])
def eyes(request: pytest.FixtureRequest, parts: SeeingParts) -> Iterator[Eyes]:
    loaded = Eyes(parts, request.param)
    yield loaded
    loaded.close()


def _picture(height: int, width: int) -> bytes:
    """An encoded picture of random pixels."""
    out = io.BytesIO()
    pixels = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def _prepared(parts: SeeingParts, size: tuple[int, int]) -> Patches:
    settings = parts.contract.model.frontend.image_settings
    assert settings is not None
    return patches_of(decode(_picture(*size), "image"), settings, "image")


def _laid_out(parts: SeeingParts, tokens: Sequence[int], *sizes: tuple[int, int]) -> ImagePrompt:
    settings = parts.contract.model.frontend.image_settings
    assert settings is not None
    return lay_out(tokens, [_prepared(parts, size) for size in sizes], settings)


def _from_pixels(parts: SeeingParts, size: tuple[int, int]) -> NDArray[np.float64]:
    """Features in double precision, from the decoded pixels on."""
    settings = parts.contract.model.frontend.image_settings
    assert settings is not None
    prepared = _prepared(parts, size)
    picture = Image.open(io.BytesIO(_picture(*size)))
    scaled = picture.resize(
        (prepared.columns * PATCH, prepared.rows * PATCH), Image.Resampling.BICUBIC
    )
    values = np.asarray(scaled, np.float64) / 255
    values = (values - np.asarray(settings.mean)) / np.asarray(settings.std)
    patches, places = [], []
    for block_y in range(0, prepared.rows, MERGE):
        for block_x in range(0, prepared.columns, MERGE):
            for y in range(block_y, block_y + MERGE):
                for x in range(block_x, block_x + MERGE):
                    part = values[y * PATCH : (y + 1) * PATCH, x * PATCH : (x + 1) * PATCH]
                    still = np.stack([part.transpose(2, 0, 1)] * 2, axis=1)
                    patches.append(still.reshape(-1))
                    places.append((y, x))
    return parts.weights.features(np.array(patches), np.array(places))


def _look(eyes: Eyes, laid: ImagePrompt, picture: int) -> None:
    tensors = laid.tensors[picture]
    extras = LaneExtras(length=len(tensors["patches"]), images=tensors, feature_slot=0)
    eyes.run(VISION, [LaneWork(0, 1, 0, (), False, (), extras=extras)])


@pytest.mark.clause("FRONT-9")
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_features_are_those_of_the_pixels(
    eyes: Eyes, parts: SeeingParts, size: tuple[int, int]
) -> None:
    expected = _from_pixels(parts, size)
    laid = _laid_out(parts, [1, parts.sentinel, 2], size)
    _look(eyes, laid, 0)
    found = eyes.values(FEATURES)[: len(expected)]
    assert found.shape == (sum(index >= 0 for index in laid.feature_indices), FEATURE)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < 1e-5


@pytest.mark.clause("FRONT-9")
def test_each_picture_has_its_own_features(eyes: Eyes, parts: SeeingParts) -> None:
    """A smaller picture after a larger one, and the other way round."""
    laid = _laid_out(parts, [parts.sentinel, 5, parts.sentinel], SIZES[0], SIZES[2])
    for picture in (0, 1, 0):
        expected = _from_pixels(parts, (SIZES[0], SIZES[2])[picture])
        _look(eyes, laid, picture)
        np.testing.assert_allclose(
            eyes.values(FEATURES)[: len(expected)], expected, atol=1e-4, rtol=1e-3
        )


@pytest.mark.clause("FRONT-9")
def test_a_prompts_places_reach_its_program(eyes: Eyes, parts: SeeingParts) -> None:
    """Sentinels, features and the three rows of positions, for a prompt in two chunks beside one
    without pictures."""
    laid = _laid_out(parts, [3, 4, parts.sentinel, 5, parts.sentinel, 6], SIZES[2], SIZES[1])
    assert set(laid.tokens) - {3, 4, 5, 6} == {parts.sentinel}
    seen, placed = parts.weights.values["seen"], parts.weights.values["placed"]
    eyes.run(
        "initialize.b32",
        [LaneWork(slot, 9, 0, (), False, (), admission=GREEDY) for slot in (0, 1)],
    )
    begin, end = laid.spans[1]
    plain = [7, 8, 9]
    for first, last in ((0, begin), (begin, len(laid.tokens))):
        images = {POSITIONS: laid.positions[first:last]}
        extras = LaneExtras(
            feature_indices=laid.feature_indices[first:last], feature_slot=1, images=images
        )
        lanes = [
            LaneWork(0, 9, first, laid.tokens[first:last], False, (0,), extras=extras),
            LaneWork(
                1,
                9,
                len(plain) * (first > 0),
                plain,
                False,
                (1,),
                extras=LaneExtras(images={POSITIONS: np.zeros((len(plain), 3), np.int32)}),
            ),
        ]
        eyes.run(PREFILL, lanes)
        count = last - first
        indices = np.array(laid.feature_indices[first:last])
        expected = np.where(indices[:, None] >= 0, seen[indices], 0)
        np.testing.assert_array_equal(eyes.values(SEEN)[:count], expected)
        np.testing.assert_array_equal(eyes.values(SEEN)[count : count + len(plain)], 0)
        places = eyes.values(PLACED).reshape(-1, 3, WIDTH // 2)
        np.testing.assert_array_equal(places[:count], placed[laid.positions[first:last]])
        np.testing.assert_array_equal(eyes.values("in.tokens")[:count], laid.tokens[first:last])
        np.testing.assert_array_equal(eyes.values(SLOT)[:2], [placed[1], np.zeros(WIDTH // 2)])
    assert begin < end <= len(laid.tokens)


@pytest.mark.clause("FRONT-9")
def test_what_the_layout_lacks_is_refused_by_name(eyes: Eyes, parts: SeeingParts) -> None:
    laid = _laid_out(parts, [parts.sentinel], SIZES[0])
    (tensors,) = laid.tensors
    for without in tensors:
        images = {name: value for name, value in tensors.items() if name != without}
        extras = LaneExtras(length=len(tensors["patches"]), images=images)
        with pytest.raises(ExecutionError, match=f"no image tensor '{without}'"):
            eyes.run(VISION, [LaneWork(0, 1, 0, (), False, (), extras=extras)])
    cut = {name: value[:-1] for name, value in tensors.items() if name == "patches"}
    extras = LaneExtras(length=len(tensors["patches"]), images={**tensors, **cut})
    with pytest.raises(ExecutionError, match="shape"):
        eyes.run(VISION, [LaneWork(0, 1, 0, (), False, (), extras=extras)])


def test_serving_refuses_a_vision_program_by_name(parts: SeeingParts) -> None:
    with pytest.raises(ContractError, match="VISION"):
        refuse_unsupported(parts.manifest.programs)
