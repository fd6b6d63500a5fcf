"""Reads a GGUF file: its metadata, and its tensors as views of the mapped file.

Our own reader, since the file is hostile until checked: every count and length is held against
the bytes that are left before anything of that size is made. Knows the container only; what the
metadata means is `gguf_checkpoint`'s.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ignition.preparation.checkpoints.files import map_file
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import Bytes, Storage
from ignition.preparation.stored_matrix import StoredMatrix

_MAX_TENSORS: Final = 1 << 16
_MAX_FIELDS: Final = 1 << 16
_MAX_NAME_NBYTES: Final = 1 << 12
_MAX_DIMENSIONS: Final = 4
_MAX_ELEMENTS: Final = 1 << 48

# Metadata type numbers: scalars by their struct form, then the three special ones.
_SCALARS: Final = {
    number: f"<{form}"
    for number, form in zip((0, 1, 2, 3, 4, 5, 6, 10, 11, 12), "BbHhIifQqd", strict=True)
}
_BOOL: Final = 7
_STRING: Final = 8
_ARRAY: Final = 9

# GGML's numbers of the types that are supported.
_STORAGES: Final = {
    0: Storage.F32,
    1: Storage.F16,
    30: Storage.BF16,
    8: Storage.Q8_0,
    2: Storage.Q4_0,
    3: Storage.Q4_1,
    14: Storage.Q6_K,
}
# The commonest others, so that an error can name them.
_OTHER_TYPES: Final = {6: "Q5_0", 7: "Q5_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K"}

MetadataArray = list[str] | NDArray[np.generic]
MetadataValue = int | float | bool | str | MetadataArray


@dataclass(frozen=True, eq=False)
class GgufTensor:
    """One tensor: `shape` slowest dimension first, `row_bytes` `u8 [rows, bytes of a row]`."""

    name: str
    shape: tuple[int, ...]
    storage: Storage
    row_bytes: Bytes

    def as_matrix(self) -> StoredMatrix:
        """The tensor as a matrix; a vector becomes one row."""
        rows, width = (1, *self.shape)[-2:]
        return StoredMatrix(self.storage, (rows, width), self.row_bytes)


@dataclass(frozen=True)
class GgufFile:
    """A file's metadata and tensors, by name."""

    metadata: dict[str, MetadataValue]
    tensors: dict[str, GgufTensor]


def read_gguf(path: Path) -> GgufFile:
    """Reads the header of the file at `path` and maps its tensors."""
    content = map_file(path)
    cursor = _Cursor(content, path.name)
    if cursor.take(4) != b"GGUF":
        raise CheckpointError("isn't a GGUF file", where=path.name)
    version = cursor.integer("<I")
    if version not in (2, 3):
        big_endian = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
        raise CheckpointError(
            "is a big-endian GGUF file" if big_endian else f"has GGUF version {version}",
            where=path.name,
            remedy="Supported are little-endian files of versions 2 and 3",
        )
    tensor_count = cursor.count("tensors", _MAX_TENSORS)
    field_count = cursor.count("metadata fields", _MAX_FIELDS)
    metadata: dict[str, MetadataValue] = {}
    for _ in range(field_count):
        name = cursor.text(_MAX_NAME_NBYTES)
        if name in metadata:
            raise CheckpointError(f"metadata field `{name}` occurs twice", where=path.name)
        metadata[name] = _read_value(cursor, name)
    entries = [_read_entry(cursor) for _ in range(tensor_count)]
    body = content[_aligned(cursor.at, _alignment(metadata, path.name)) :]
    tensors: dict[str, GgufTensor] = {}
    for entry in entries:
        if entry.name in tensors:
            raise CheckpointError(f"tensor `{entry.name}` occurs twice", where=path.name)
        tensors[entry.name] = _map_tensor(entry, body, path.name)
    return GgufFile(metadata, tensors)


class _Cursor:
    """Reads forward through the file; refuses to pass its end."""

    def __init__(self, content: Bytes, where: str) -> None:
        self._content = content.data
        self._size = content.size
        self.where = where
        self.at = 0

    def take(self, nbytes: int) -> bytes:
        if nbytes > self._size - self.at:
            raise CheckpointError(
                f"ends inside its header, at byte {self._size}",
                where=self.where,
                remedy="The file is cut off or damaged; fetch it again",
            )
        self.at += nbytes
        return bytes(self._content[self.at - nbytes : self.at])

    def scalar(self, form: str) -> int | float:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        assert isinstance(value, int | float)
        return value

    def integer(self, form: str) -> int:
        return int(self.scalar(form))

    def count(self, what: str, limit: int) -> int:
        value = self.integer("<Q")
        if value > limit:
            raise CheckpointError(
                f"announces {value} {what}, more than the {limit} that are allowed",
                where=self.where,
            )
        return value

    def text(self, limit_nbytes: int) -> str:
        try:
            return self.take(self.count("bytes of text", limit_nbytes)).decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"holds text that isn't UTF-8 before byte {self.at}", where=self.where
            ) from error

    @property
    def left(self) -> int:
        return self._size - self.at


def _read_value(cursor: _Cursor, name: str) -> MetadataValue:
    kind = cursor.integer("<I")
    if kind == _ARRAY:
        element = cursor.integer("<I")
        # No element takes less than a byte.
        count = cursor.count(f"elements in `{name}`", cursor.left)
        if element == _STRING:
            return [cursor.text(cursor.left) for _ in range(count)]
        if element == _BOOL or element in _SCALARS:
            dtype = np.dtype("?" if element == _BOOL else _SCALARS[element])
            return np.frombuffer(cursor.take(count * dtype.itemsize), dtype)
        raise CheckpointError(
            f"metadata field `{name}` is an array of type {element}, which isn't supported",
            where=cursor.where,
        )
    if kind == _STRING:
        return cursor.text(cursor.left)
    if kind == _BOOL:
        return cursor.take(1) != b"\0"
    if kind in _SCALARS:
        return cursor.scalar(_SCALARS[kind])
    raise CheckpointError(
        f"metadata field `{name}` has the unknown type {kind}", where=cursor.where
    )


@dataclass(frozen=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def _read_entry(cursor: _Cursor) -> _Entry:
    name = cursor.text(_MAX_NAME_NBYTES)
    dimensions = cursor.integer("<I")
    if dimensions > _MAX_DIMENSIONS:
        raise CheckpointError(f"tensor `{name}` has {dimensions} dimensions", where=cursor.where)
    # The file lists the fastest dimension first.
    shape = tuple(cursor.integer("<Q") for _ in range(dimensions))[::-1]
    return _Entry(name, shape, cursor.integer("<I"), cursor.integer("<Q"))


def _alignment(metadata: dict[str, MetadataValue], where: str) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or value not in (1 << bit for bit in range(3, 17)):
        raise CheckpointError(
            f"`general.alignment` is {value!r}, no power of two from 8 to 65536", where=where
        )
    return value


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def _map_tensor(entry: _Entry, body: Bytes, where: str) -> GgufTensor:
    storage = _STORAGES.get(entry.kind)
    if storage is None:
        raise CheckpointError(
            f"tensor `{entry.name}` is stored as "
            f"{_OTHER_TYPES.get(entry.kind, f'GGML type {entry.kind}')}",
            where=where,
            remedy=f"Supported are {', '.join(s.value for s in _STORAGES.values())}",
        )
    if not entry.shape or not 0 < math.prod(entry.shape) <= _MAX_ELEMENTS:
        raise CheckpointError(
            f"tensor `{entry.name}` has shape {list(entry.shape)}, no valid one", where=where
        )
    *leading, width = entry.shape
    if width % storage.block_elements:
        raise CheckpointError(
            f"tensor `{entry.name}` has rows of {width} elements, no whole number of "
            f"{storage.value} blocks",
            where=where,
        )
    rows, row_nbytes = math.prod(leading), storage.row_nbytes(width)
    end = entry.offset + rows * row_nbytes
    if end > body.size:
        raise CheckpointError(
            f"tensor `{entry.name}` ends at byte {end} of {body.size}",
            where=where,
            remedy="The file is cut off or damaged; fetch it again",
        )
    data = body[entry.offset : end].reshape(rows, row_nbytes)
    return GgufTensor(entry.name, entry.shape, storage, data)
