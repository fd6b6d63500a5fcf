"""Cubins before the driver sees them: it is told where one begins, not where it ends.

`check_image` holds what the headers say against the bytes that there are, so that a module that was
cut short ends in an error instead of a read past it. What is inside is the driver's to check.
"""

from __future__ import annotations

import struct
from typing import Final

from helios.errors import ContractError

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_CUDA_MACHINE: Final = 190
_WITHOUT_CONTENT: Final = 8  # a section's type


def check_image(name: str, image: bytes) -> None:
    """Raises ContractError naming the module where it is no cubin or a part lies past its end."""
    if len(image) < _HEADER.size or not image.startswith(_ELF_64_LITTLE):
        _refuse(name, "is no cubin")
    header = _HEADER.unpack_from(image)
    machine, segments_at, sections_at = header[2], header[5], header[6]
    segment_nbytes, segments, section_nbytes, sections, names = header[9:]
    if machine != _CUDA_MACHINE:
        _refuse(name, "is no cubin")
    if segments and segment_nbytes != _SEGMENT.size:
        _refuse(name, f"has segments of {segment_nbytes} bytes")
    if sections and section_nbytes != _SECTION.size:
        _refuse(name, f"has sections of {section_nbytes} bytes")
    if names >= sections:
        _refuse(name, "names no section")
    _check_end(name, "its table of segments", segments_at + segments * segment_nbytes, image)
    _check_end(name, "its table of sections", sections_at + sections * section_nbytes, image)
    for number in range(segments):
        segment = _SEGMENT.unpack_from(image, segments_at + number * segment_nbytes)
        _check_end(name, f"segment {number}", segment[2] + segment[5], image)
    for number in range(sections):
        section = _SECTION.unpack_from(image, sections_at + number * section_nbytes)
        kind, begin, nbytes = section[1], section[4], section[5]
        if kind != _WITHOUT_CONTENT:
            _check_end(name, f"section {number}", begin + nbytes, image)


def _check_end(name: str, part: str, end: int, image: bytes) -> None:
    if end > len(image):
        _refuse(name, f"{part} ends at {end}, past the {len(image)} bytes that there are")


def _refuse(name: str, what: str) -> None:
    raise ContractError(
        what,
        where=f"module {name!r}",
        remedy="Prepare the core again with this version of Ignition",
    )
