"""Reading protobuf fields that arrive from outside: presence, ranges, enums, unknown fields.

Each function returns a good value or raises ContractError whose `where` is the field's path.
Used by the contract's decoder and the execution manifest's; knows neither's meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from helios.errors import ContractError

NAME_LIMIT = 256  # characters of any name
INT32_MAX = (1 << 31) - 1

EnumType = TypeVar("EnumType", bound=IntEnum)
Value = TypeVar("Value")


def refuse(where: str, what: str, remedy: str = "") -> NoReturn:
    """Raises the ContractError of one field."""
    raise ContractError(what, where=where, remedy=remedy)


def integer(value: int, where: str, *, low: int = 0, high: int = INT32_MAX) -> int:
    """`value`, if it lies in [low, high]."""
    if not low <= value <= high:
        refuse(where, f"{value} is outside [{low}, {high}]")
    return value


def real(value: float, where: str, *, low: float = -math.inf, high: float = math.inf) -> float:
    """`value`, if it is finite and lies in [low, high]."""
    if not (math.isfinite(value) and low <= value <= high):
        refuse(where, f"{value} is not a number in [{low}, {high}]")
    return value


def name(value: str, where: str) -> str:
    """`value`, if it can name something: nonempty, printable, of bounded length."""
    if not value:
        refuse(where, "is empty")
    if len(value) > NAME_LIMIT:
        refuse(where, f"has {len(value)} characters, over the limit of {NAME_LIMIT}")
    if not value.isprintable():
        refuse(where, f"{value!r} has unprintable characters")
    return value


def enum(kind: type[EnumType], value: int, where: str) -> EnumType:
    """The member of `kind`; zero (unspecified) and unknown numbers are refused."""
    try:
        return kind(value)
    except ValueError:
        if value == 0:
            refuse(where, f"{kind.__name__} is unspecified")
        refuse(where, f"{value} is no {kind.__name__} that this version knows", _NEWER)


def child(message: Any, field: str, where: str) -> Any:
    """A submessage that must be present."""
    if not message.HasField(field):
        refuse(join(where, field), "is missing")
    return getattr(message, field)


def each(items: Sequence[Any], where: str, read: Callable[[Any, str], Value]) -> tuple[Value, ...]:
    """`read(item, path of the item)` for every item of a repeated field."""
    return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(items))


def unique(values: Iterable[object], where: str, attribute: str = "") -> None:
    """Refuses a value that occurs twice; `attribute` completes the path of an item's field."""
    seen: set[object] = set()
    for index, value in enumerate(values):
        if value in seen:
            refuse(f"{where}[{index}]{attribute}", f"{value!r} occurs twice")
        seen.add(value)


def ascending(values: Sequence[int], where: str) -> tuple[int, ...]:
    """Positive values in strictly ascending order."""
    previous = 0
    for index, value in enumerate(values):
        if not previous < value <= INT32_MAX:
            refuse(f"{where}[{index}]", f"{value} doesn't ascend from {previous}")
        previous = value
    return tuple(values)


def join(where: str, field: str) -> str:
    """Path of a field of the message at `where` (empty for the outermost message)."""
    return f"{where}.{field}" if where else field


def refuse_unknown_fields(message: Message, where: str = "") -> None:
    """Refuses wire fields that this version's schema doesn't have, anywhere in `message`.

    Almost every message has none, so the whole is compared in one native call first.
    """
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    if known.ByteSize() != message.ByteSize():
        _find_unknown_field(message, where)


def _find_unknown_field(message: Message, where: str) -> None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        refuse(join(where, f"<{unknown[0].field_number}>"), "is an unknown field", _NEWER)
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        path = join(where, field.name)
        if isinstance(value, Message):
            _find_unknown_field(value, path)
        else:
            for index, item in enumerate(value):
                _find_unknown_field(item, f"{path}[{index}]")


_NEWER = "The core may need a newer Helios"
