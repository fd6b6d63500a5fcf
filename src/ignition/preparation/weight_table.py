"""The weights of a draft: where each tensor lies and how its content is drawn.

Written where programs are recorded, read where weights are drawn; JSON, so that other tools can
make the same model. Matrices are drawn, vectors are written out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.core.format import WEIGHT_LIMIT_NBYTES
from helios.errors import CoreError
from ignition.preparation.fields import Fields, parse_json_object
from ignition.preparation.packing import Storage, code_rows_nbytes

VERSION: Final = 1
# Kinds of matrices that are drawn, by how their elements are kept.
_NORMAL: Final = {
    Storage.BF16: "normal",
    Storage.Q8_128: "normal_q8_128",
    Storage.F8_E4M3: "normal_f8_e4m3",
}
_STORAGES: Final = {kind: storage for storage, kind in _NORMAL.items()}
_VALUES: Final = "values"


@dataclass(frozen=True)
class NormalMatrix:
    """`[outputs, width]`, row by row, normally distributed with mean 0 and this deviation: bf16, or
    codes and behind them their scales."""

    name: str
    offset: int
    outputs: int
    width: int
    deviation: float
    storage: Storage = Storage.BF16

    @property
    def nbytes(self) -> int:
        """Bytes of its elements and scales."""
        if self.storage is Storage.BF16:
            return 2 * self.outputs * self.width
        return code_rows_nbytes(self.storage, self.outputs, self.width)


@dataclass(frozen=True)
class Values:
    """f32 values as they are."""

    name: str
    offset: int
    content: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return 4 * self.content.size


Tensor = NormalMatrix | Values


@dataclass(frozen=True)
class WeightTable:
    """All tensors of one weight resource, ascending and apart; `nbytes` of the whole."""

    resource: str
    nbytes: int
    tensors: tuple[Tensor, ...]

    def to_json(self) -> bytes:
        """The table as `read_table` takes it."""
        tensors = [_entry(tensor) for tensor in self.tensors]
        document = {
            "version": VERSION,
            "resource": self.resource,
            "nbytes": self.nbytes,
            "tensors": tensors,
        }
        return json.dumps(document, indent=1).encode()


def read_table(content: bytes, where: str) -> WeightTable:
    """The table in a draft's file. Raises a HeliosError naming the field that is wrong."""
    fields = Fields(parse_json_object(content, where), where)
    version = fields.integer("version", 0, 1 << 30)
    if version != VERSION:
        raise CoreError(f"has version {version}, this Ignition reads {VERSION}", where=where)
    listed = fields.values.get("tensors")
    if not isinstance(listed, list):
        raise fields.refusal("tensors", "must be a list")
    nbytes = fields.integer("nbytes", 1, WEIGHT_LIMIT_NBYTES)
    tensors = tuple(_tensor(entry, f"{where}, tensors[{i}]") for i, entry in enumerate(listed))
    _check_order(tensors, nbytes, where)
    return WeightTable(fields.text("resource"), nbytes, tensors)


def _check_order(tensors: Iterable[Tensor], nbytes: int, where: str) -> None:
    end = 0
    for tensor in tensors:
        if tensor.offset < end or tensor.offset + tensor.nbytes > nbytes:
            raise CoreError(
                f"tensor {tensor.name!r} isn't behind the one before it, inside {nbytes} bytes",
                where=where,
            )
        end = tensor.offset + tensor.nbytes


def _entry(tensor: Tensor) -> Mapping[str, object]:
    if isinstance(tensor, NormalMatrix):
        kind, fields = _NORMAL[tensor.storage], asdict(tensor)
        del fields["storage"]
        return {"kind": kind, **fields}
    content = base64.b64encode(np.ascontiguousarray(tensor.content, "<f4").tobytes()).decode()
    return {"kind": _VALUES, "name": tensor.name, "offset": tensor.offset, "f32": content}


def _tensor(entry: object, where: str) -> Tensor:
    if not isinstance(entry, dict):
        raise CoreError("is no object", where=where)
    fields = Fields(entry, where)
    name, kind = fields.text("name"), fields.text("kind")
    offset = fields.integer("offset", 0, WEIGHT_LIMIT_NBYTES)
    if kind in _STORAGES:
        return NormalMatrix(
            name,
            offset,
            fields.integer("outputs", 1, WEIGHT_LIMIT_NBYTES),
            fields.integer("width", 1, WEIGHT_LIMIT_NBYTES),
            fields.number("deviation", 0.0, 1e6),
            _STORAGES[kind],
        )
    if kind != _VALUES:
        raise fields.refusal("kind", f"is {kind!r}, not {', '.join(_STORAGES)} or {_VALUES}")
    try:
        raw = base64.b64decode(fields.text("f32"), validate=True)
        values = np.frombuffer(raw, "<f4")
    except ValueError as error:
        raise fields.refusal("f32", f"is no base64 of f32 values: {error}") from error
    if not np.isfinite(values).all():
        raise fields.refusal("f32", "has values that aren't finite")
    return Values(name, offset, values)
