"""Reads one safetensors file as views of its mapping; every offset is checked before use.

The format: a little-endian u64 header size, a JSON header that gives each tensor's dtype, shape
and byte range, then the bytes. Our own reader, because the safetensors package has no bf16 in
numpy and copies what it returns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ignition.preparation.checkpoints.files import map_file
from ignition.preparation.errors import CheckpointError
from ignition.preparation.fields import parse_json_object
from ignition.preparation.packing import Bytes, Storage

_HEADER_LIMIT_NBYTES: Final = 100 << 20
_MAX_DIMENSIONS: Final = 8
_MAX_ELEMENTS: Final = 1 << 48
# By size in bytes.
_DTYPES: Final = {
    8: ("F64", "I64", "U64"),
    4: ("F32", "I32", "U32"),
    2: ("F16", "BF16", "I16", "U16"),
    1: ("F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"),
}
_DTYPE_NBYTES: Final = {name: nbytes for nbytes, names in _DTYPES.items() for name in names}
_STORAGES: Final = {"F32": Storage.F32, "F16": Storage.F16, "BF16": Storage.BF16}


@dataclass(frozen=True, eq=False)
class FileTensor:
    """One tensor of a file: row-major elements of `dtype`; `data` is its `u8 [*]` in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Bytes
    file: str

    @property
    def storage(self) -> Storage:
        """The storage of its elements; raises CheckpointError for other dtypes."""
        if self.dtype not in _STORAGES:
            raise CheckpointError(
                f"tensor `{self.name}` is stored as {self.dtype}",
                where=self.file,
                remedy=f"Supported are {', '.join(_STORAGES)}",
            )
        return _STORAGES[self.dtype]


def read_safetensors(path: Path) -> dict[str, FileTensor]:
    """All tensors of the file, by name."""
    content = map_file(path)
    if content.size < 8:
        raise CheckpointError("is too short to be a safetensors file", where=path.name)
    header_nbytes = int.from_bytes(content[:8].tobytes(), "little")
    if header_nbytes > min(_HEADER_LIMIT_NBYTES, content.size - 8):
        raise CheckpointError(
            f"announces a header of {header_nbytes} bytes, but the file has {content.size}",
            where=path.name,
        )
    header = parse_json_object(content[8 : 8 + header_nbytes].tobytes(), path.name)
    header.pop("__metadata__", None)
    body = content[8 + header_nbytes :]
    ends: dict[str, tuple[int, int]] = {}
    tensors = {name: _tensor(name, entry, body, path.name, ends) for name, entry in header.items()}
    _check_cover(ends, body.size, path.name)
    return tensors


def _check_cover(ends: dict[str, tuple[int, int]], nbytes: int, file: str) -> None:
    """The tensors, one after the other, are all that the file holds: no byte is two tensors', and
    none is left over."""
    at, before = 0, "the header"
    for name, (begin, end) in sorted(ends.items(), key=lambda entry: (entry[1], entry[0])):
        if begin != at:
            how = "overlaps" if begin < at else f"leaves {begin - at} bytes after"
            raise CheckpointError(f"tensor `{name}` {how} {before}", where=file)
        at, before = end, f"`{name}`"
    if at != nbytes:
        raise CheckpointError(f"has {nbytes - at} bytes after its last tensor", where=file)


def _tensor(
    name: str, entry: object, body: Bytes, file: str, ends: dict[str, tuple[int, int]]
) -> FileTensor:
    """A tensor by its entry in the header; where it begins and ends goes into `ends`."""

    def refusal(what: str) -> CheckpointError:
        return CheckpointError(f"tensor `{name}` {what}", where=file)

    if not isinstance(entry, dict):
        raise refusal("has no description")
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in _DTYPE_NBYTES:
        raise refusal(f"has an unknown dtype, {dtype!r}")
    shape, offsets = _sizes(entry.get("shape")), _sizes(entry.get("data_offsets"))
    if shape is None or len(shape) > _MAX_DIMENSIONS or math.prod(shape) > _MAX_ELEMENTS:
        raise refusal("has no valid shape")
    if offsets is None or len(offsets) != 2 or not offsets[0] <= offsets[1] <= body.size:
        raise refusal("lies outside the file")
    if offsets[1] - offsets[0] != math.prod(shape) * _DTYPE_NBYTES[dtype]:
        raise refusal(f"has {offsets[1] - offsets[0]} bytes, which isn't what its shape needs")
    ends[name] = (offsets[0], offsets[1])
    return FileTensor(name, dtype, shape, body[offsets[0] : offsets[1]], file)


def _sizes(value: object) -> tuple[int, ...] | None:
    """A JSON list of sizes, or None if it is anything else."""
    if not isinstance(value, list):
        return None
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in value):
        return None
    return tuple(value)
