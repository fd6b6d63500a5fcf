"""Images that the stand-in driver takes for cubins: functions by name with their parameters' sizes,
and nothing to run."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_HEADER = "<16sHHIQQQIHHHHHH"
_SECTION = "<IIQQQQIIQQ"
_CUDA_MACHINE = 190


def cubin(functions: Mapping[str, Sequence[int]], capability: int = 90) -> bytes:
    """An image for a compute capability, with these functions."""
    contents = [b"", b"\0"]  # the empty section and the names
    names = [0, 0]
    for function, sizes in functions.items():
        names.append(len(contents[1]))
        contents[1] += f".nv.info.{function}".encode() + b"\0"
        contents.append(_parameters(sizes))
    at = struct.calcsize(_HEADER)
    headers = []
    for name, content in zip(names, contents, strict=True):
        headers.append(struct.pack(_SECTION, name, 1, 0, 0, at, len(content), 0, 0, 1, 0))
        at += len(content)
    header = struct.pack(
        _HEADER,
        b"\x7fELF\x02\x01\x01" + bytes(9),
        2,
        _CUDA_MACHINE,
        1,
        0,
        0,
        at,
        capability << 8,
        struct.calcsize(_HEADER),
        0,
        0,
        struct.calcsize(_SECTION),
        len(headers),
        1,
    )
    return header + b"".join(contents) + b"".join(headers)


def _parameters(sizes: Sequence[int]) -> bytes:
    """The record of each parameter; offsets are those of a C struct, with maps aligned to 64."""
    records, offset = b"", 0
    for ordinal, size in enumerate(sizes):
        alignment = min(size, 64)
        offset = -(-offset // alignment) * alignment
        records += struct.pack("<BBHIHHI", 4, 0x17, 12, 0, ordinal, offset, size << 18)
        offset += size
    return records
