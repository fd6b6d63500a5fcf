"""Modules that are cut short or point outside of themselves, before any driver sees them."""

from __future__ import annotations

import struct

import pytest

from helios.errors import ContractError
from helios.runtime.devices.cuda.images import check_image
from tests.standin_driver.cubins import cubin

IMAGE = cubin({"work": (8, 4), "more": (8,)})
SECTION_NBYTES = 64
(SECTIONS_AT,) = struct.unpack_from("<Q", IMAGE, 40)


def changed(at: int, form: str, value: int) -> bytes:
    image = bytearray(IMAGE)
    struct.pack_into(form, image, at, value)
    return bytes(image)


def test_a_whole_one_is_taken() -> None:
    check_image("module", IMAGE)


@pytest.mark.parametrize("nbytes", [*range(0, 64, 7), 64, len(IMAGE) // 2, len(IMAGE) - 1])
def test_one_that_is_cut_short_is_refused(nbytes: int) -> None:
    with pytest.raises(ContractError, match="module 'module': "):
        check_image("module", IMAGE[:nbytes])


@pytest.mark.parametrize(
    "image",
    [
        changed(0, "<B", 0x7E),
        changed(4, "<B", 1),  # of 32 bits
        changed(18, "<H", 62),  # of another machine
        changed(32, "<Q", len(IMAGE) + 1),  # segments
        changed(56, "<H", 1),  # a segment without a size
        changed(40, "<Q", len(IMAGE) - SECTION_NBYTES + 1),  # sections
        changed(40, "<Q", (1 << 64) - 1),
        changed(58, "<H", 40),
        changed(60, "<H", 1000),
        changed(62, "<H", 4),  # the section of names
        changed(SECTIONS_AT + 2 * SECTION_NBYTES + 24, "<Q", len(IMAGE)),
        changed(SECTIONS_AT + 3 * SECTION_NBYTES + 32, "<Q", 1 << 63),
    ],
)
def test_one_that_points_outside_of_itself_is_refused(image: bytes) -> None:
    with pytest.raises(ContractError, match="Prepare the core again"):
        check_image("module", image)


def with_segment(begin: int, nbytes: int) -> bytes:
    """The image with a table of one segment at its end."""
    image = bytearray(IMAGE) + struct.pack("<IIQQQQQQ", 1, 5, begin, 0, 0, nbytes, nbytes, 0)
    struct.pack_into("<Q", image, 32, len(IMAGE))
    struct.pack_into("<HH", image, 54, 56, 1)
    return bytes(image)


def test_segments_lie_inside() -> None:
    check_image("module", with_segment(64, len(IMAGE) - 64))
    with pytest.raises(ContractError, match="segment 0 ends at"):
        check_image("module", with_segment(64, len(IMAGE)))
