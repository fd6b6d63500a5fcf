"""Reads what a cubin says of itself: architecture and parameters, as ptxas wrote them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

CUDA_MACHINE = 190
_WITH_SIZE = 4
_PARAMETER = 0x17


@dataclass(frozen=True)
class CubinFacts:
    machine: int
    architecture: int
    # (offset, nbytes) by index
    parameters: tuple[tuple[int, int], ...]


def read(cubin: bytes, function: str) -> CubinFacts:
    assert cubin[:4] == b"\x7fELF"
    (machine,) = struct.unpack_from("<H", cubin, 18)
    (flags,) = struct.unpack_from("<I", cubin, 48)
    record = _sections(cubin)[f".nv.info.{function}"]
    found = {}
    at = 0
    while at < len(record):
        form, attribute, size = struct.unpack_from("<BBH", record, at)
        at += 4
        if form != _WITH_SIZE:
            continue
        if attribute == _PARAMETER:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", record, at)
            found[ordinal] = (offset, packed >> 18)
        at += size
    architecture = flags >> 8 & 0xFF
    return CubinFacts(machine, architecture, tuple(found[i] for i in range(len(found))))


def _sections(elf: bytes) -> dict[str, bytes]:
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry, count, names_index = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry) for i in range(count)]
    names = headers[names_index][4]
    sections = {}
    for header in headers:
        begin = names + header[0]
        name = elf[begin : elf.index(b"\0", begin)].decode()
        sections[name] = elf[header[4] : header[4] + header[5]]
    return sections
