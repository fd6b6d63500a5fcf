"""Mutates Protobuf messages by their structure, so that most of what comes out still parses.

Every choice is drawn from the given random source: the same source gives the same message. Used
by the driver's mutators and by the property tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS: Final = (
    *(0, 1, 2, 3, 4, 7, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 4095, 4096, 1 << 16),
    *(-1, -2, 1 << 22, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) - 1, 1 << 40, 1 << 42),
    *((1 << 62) - 1, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1),
)
_REALS: Final = (0.0, -0.0, 1.0, -1.0, 1e-6, 1e30, 3e38, float("inf"), float("-inf"), float("nan"))
_TEXTS: Final = (
    "",
    "x",
    "cpu",
    "file:../../etc/passwd",
    "\0",
    "ä" * 300,
    "%s%n",
    "../..",
    "\u202e",
)
# A field that no schema has, as varint and as bytes.
_UNKNOWN: Final = (b"\xc0\x3e\x01", b"\xca\x3e\x02hi")
_RANGES: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(1 << 31), (1 << 31) - 1),
}
_MOST_ENTRIES: Final = 4000


def mutate(message: Any, random: Random, changes: int | None = None) -> None:
    """Changes a message in place, once or a few times."""
    for _ in range(changes or random.choice((1, 1, 1, 2, 3, 8))):
        parts = list(_parts(message))
        _change(random.choice(parts), parts, random)


def _parts(message: Any) -> Iterator[Any]:
    """The message and every message in it, maps excepted."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in value if field.is_repeated else (value,):
            yield from _parts(part)


def _change(part: Any, parts: list[Any], random: Random) -> None:
    fields = part.DESCRIPTOR.fields
    if not fields or random.random() < 0.02:
        part.MergeFromString(random.choice(_UNKNOWN))
        return
    present = [field for field, _ in part.ListFields()]
    field = random.choice(present if present and random.random() < 0.8 else fields)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _change_map(getattr(part, field.name), random)
    elif random.random() < 0.05:
        part.ClearField(field.name)
    elif field.is_repeated:
        _change_list(getattr(part, field.name), field, parts, random)
    elif field.message_type is not None:
        _graft(getattr(part, field.name), parts, random)
    else:
        setattr(part, field.name, _value(field, getattr(part, field.name), parts, random))


def _change_map(entries: Any, random: Random) -> None:
    """Maps here are from text to text."""
    keys = sorted(entries)
    key = random.choice(keys) if keys and random.random() < 0.8 else random.choice(_TEXTS)
    if random.random() < 0.3:
        entries.pop(key, None)
    else:
        entries[key] = random.choice((*_TEXTS, *(entries[k] for k in keys)))


def _change_list(values: Any, field: Any, parts: list[Any], random: Random) -> None:
    action = random.choice(("change", "change", "remove", "repeat", "swap", "grow"))
    if not values or action == "grow":
        count = random.choice((1, 1, 2, 100)) if len(values) < _MOST_ENTRIES else 0
        for _ in range(count):
            if field.message_type is None:
                values.append(_value(field, None, parts, random))
            else:
                _graft(values.add(), parts, random)
        return
    index = random.randrange(len(values))
    if action == "remove":
        del values[index]
    elif action == "repeat":
        values.append(values[index])
    elif action == "swap":
        other = random.randrange(len(values))
        if field.message_type is None:
            values[index], values[other] = values[other], values[index]
        else:
            kept = type(values[index])()
            kept.CopyFrom(values[index])
            values[index].CopyFrom(values[other])
            values[other].CopyFrom(kept)
    elif field.message_type is None:
        values[index] = _value(field, values[index], parts, random)
    else:
        _graft(values[index], parts, random)


def _graft(part: Message, parts: list[Any], random: Random) -> None:
    """Copies a message of the same type from elsewhere, or makes an empty one present."""
    donors = [other for other in parts if other.DESCRIPTOR is part.DESCRIPTOR and other is not part]
    if donors and random.random() < 0.8:
        part.CopyFrom(random.choice(donors))
    else:
        part.SetInParent()


def _value(field: Any, old: Any, parts: list[Any], random: Random) -> Any:
    kind = field.cpp_type
    if kind in _RANGES:
        low, high = _RANGES[kind]
        if kind == FieldDescriptor.CPPTYPE_ENUM and random.random() < 0.7:
            return random.choice([value.number for value in field.enum_type.values])
        near = [] if old is None else [old - 1, old + 1, old * 2, old // 2, old ^ 1 << 12]
        return min(max(random.choice((*_INTEGERS, *near)), low), high)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return random.choice(_REALS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _octets(old or b"", random)
    # Mostly a name that means something elsewhere in the message.
    names = _names(parts, random) if random.random() < 0.8 else []
    return random.choice(names or _TEXTS)


def _octets(old: bytes, random: Random) -> bytes:
    action = random.randrange(4)
    if action == 0 or not old:
        return random.randbytes(random.choice((0, 1, 8, 12, 32, 64)))
    if action == 1:
        return old[:-1]
    if action == 2:
        return old + b"\0"
    at = random.randrange(len(old))
    return old[:at] + bytes([old[at] ^ 1 << random.randrange(8)]) + old[at + 1 :]


def _names(parts: list[Any], random: Random) -> list[str]:
    part = random.choice(parts)
    found = []
    for field, value in part.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and field.type != field.TYPE_BYTES:
            found += list(value) if field.is_repeated else [value]
    return found
