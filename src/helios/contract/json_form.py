"""The JSON form of a serving contract: for people to read and for tools to write by hand.

Protobuf's own JSON with the schema's field names. Reading is strict: a field or enumeration name
that the schema doesn't have, a name given twice and a value of another type are refused by path.
Cores carry the binary form; nothing that is served is ever read from JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from helios.contract.fields import join, refuse
from helios.schema import contract_pb2

TEXT_LIMIT: Final = 16 << 20  # characters
_INTEGERS: Final[Mapping[int, range]] = {
    FieldDescriptor.CPPTYPE_INT32: range(-(1 << 31), 1 << 31),
    FieldDescriptor.CPPTYPE_INT64: range(-(1 << 63), 1 << 63),
    FieldDescriptor.CPPTYPE_UINT32: range(1 << 32),
    FieldDescriptor.CPPTYPE_UINT64: range(1 << 64),
}
# Protobuf writes integers of 64 bits as text.
_WIDE: Final = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_SHOWN_LIMIT: Final = 60  # characters
_DECIMAL: Final = re.compile("-?[0-9]{1,20}")


def to_json(message: contract_pb2.ServingContract) -> str:
    """The contract as indented JSON; absent fields are left out."""
    text: str = json_format.MessageToJson(message, preserving_proto_field_name=True, indent=2)
    return text


def from_json(text: str) -> contract_pb2.ServingContract:
    """The message that `text` spells, not validated beyond its form: `decode` does that. Raises
    ContractError whose `where` is the offending field's path."""
    if len(text) > TEXT_LIMIT:
        refuse("", f"the JSON has {len(text)} characters, over the limit of {TEXT_LIMIT}")
    try:
        content = json.loads(text, object_pairs_hook=_object)
        root: Any = contract_pb2.ServingContract.DESCRIPTOR
        _check_object(content, root, "")
        return json_format.ParseDict(content, contract_pb2.ServingContract())
    except RecursionError:
        refuse("", "the JSON is nested too deeply")
    # Of numbers of thousands of digits, and of integers that no float can hold, too.
    except (ValueError, OverflowError, json_format.ParseError) as error:
        refuse("", f"is no contract in JSON ({error})")


class _Object(dict[str, Any]):
    """A JSON object; `twice` is a name that it gives more than once, if any."""

    twice: str | None = None


def _object(pairs: Sequence[tuple[str, Any]]) -> _Object:
    content = _Object(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        content.twice = next(name for name in names if names.count(name) > 1)
    return content


def _check_object(content: object, message: Descriptor, where: str) -> None:
    if not isinstance(content, dict):
        refuse(where, f"is no JSON object for a {message.name}")
    if isinstance(content, _Object) and content.twice is not None:
        _check_text(content.twice, where)
        refuse(join(where, content.twice), "is given twice in one JSON object")
    seen: dict[str, str] = {}
    for name, value in content.items():
        _check_text(name, where)
        field = message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)
        path = join(where, name)
        if field is None:
            refuse(path, f"{message.name} has no field of this name")
        if field.name in seen:
            refuse(path, f"is {seen[field.name]!r} under another spelling")
        seen[field.name] = name
        _check_value(value, field, path)


def _check_text(text: str, where: str) -> None:
    """JSON can spell halves of characters, which nothing behind this can take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        refuse(where, f"{text!r} holds half a character")


def _check_value(value: object, field: FieldDescriptor, path: str) -> None:
    if value is None:
        refuse(path, "is null", "Leave out what is absent")
    if field.is_repeated != isinstance(value, list):
        refuse(path, "is no JSON array" if field.is_repeated else "is a JSON array")
    items = value if isinstance(value, list) else [value]
    for index, item in enumerate(items):
        at = f"{path}[{index}]" if field.is_repeated else path
        if isinstance(item, str):
            _check_text(item, at)
        if field.message_type is not None:
            _check_object(item, field.message_type, at)
        elif field.enum_type is not None:
            _check_enum(item, field.enum_type, at)
        else:
            _check_scalar(item, field.cpp_type, at)


def _check_scalar(value: object, kind: int, path: str) -> None:
    """A value of the field's own type: nothing is turned into it."""
    if kind == FieldDescriptor.CPPTYPE_STRING:
        good = isinstance(value, str)
    elif kind == FieldDescriptor.CPPTYPE_BOOL:
        good = isinstance(value, bool)
    elif kind in _INTEGERS:
        if kind in _WIDE and isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = int(value)
        good = type(value) is int and value in _INTEGERS[kind]
    else:
        good = type(value) in (int, float) and _is_float(value)
    if not good:
        refuse(path, f"{_shown(value)} is no value of this field")


def _is_float(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, (str, float, bool, type(None))) else "this"
    return text if len(text) <= _SHOWN_LIMIT else f"{text[:_SHOWN_LIMIT]}…"


def _check_enum(value: object, enum: EnumDescriptor, path: str) -> None:
    if isinstance(value, str):
        known = value in enum.values_by_name
    else:
        known = type(value) is int and value in enum.values_by_number
    if not known:
        refuse(path, f"{value!r} is no {enum.name} that this version knows")
