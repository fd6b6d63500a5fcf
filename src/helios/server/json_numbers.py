"""Numbers of JSON bodies that 64 bits don't hold.

JSON has no bound for them and Python none for integers, but nothing here needs more, and an
integer of thousands of digits can't even be shown in a message. So they are refused in fields
that have a meaning, and don't matter in those that have none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 64) - 1
# As deep as fields of bodies lie: messages[0].content[0].field.
_DEPTH: Final = 5
_NAME_LIMIT: Final = 64  # characters


def decoded_roughly(data: bytes) -> Any:
    """A body that has numbers which can't be decoded, with an integer beyond 64 bits for each, or
    for the value around it where it lies deep. Raises msgspec.DecodeError where the rest is no
    JSON."""
    return _rough(msgspec.Raw(data), _DEPTH)


def beyond_64_bits(raw: Any, typed: Any) -> str | None:
    """The path of the first integer beyond 64 bits in `raw`, an object that was converted to
    `typed`; None where there is none. What the type doesn't have doesn't count."""
    try:
        msgspec.msgpack.encode(raw)  # has no such integers either; much faster than to look
    except OverflowError:
        return _found(raw, typed)
    return None


def _rough(value: msgspec.Raw, depth: int) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.ValidationError:
        opening = bytes(value).lstrip()[:1]
        if depth and opening == b"{":
            members = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
            return {name: _rough(member, depth - 1) for name, member in members.items()}
        if depth and opening == b"[":
            items = msgspec.json.decode(value, type=list[msgspec.Raw])
            return [_rough(item, depth - 1) for item in items]
        return _MOST + 1


def _found(raw: Any, typed: Any) -> str | None:
    left: list[tuple[str, Any, Any]] = [("", raw, typed)]
    while left:
        path, given, kept = left.pop()
        if isinstance(given, int) and not _LEAST <= given <= _MOST:
            return path
        if isinstance(kept, msgspec.Struct):
            inner = [
                (f"{path}.{name}" if path else name, given[name], getattr(kept, name))
                for name in kept.__struct_fields__
                if name in given
            ]
        elif isinstance(kept, dict):
            inner = [(f"{path}.{name[:_NAME_LIMIT]}", given[name], kept[name]) for name in kept]
        elif isinstance(kept, list):
            pairs = zip(given, kept, strict=True)
            inner = [(f"{path}[{index}]", *pair) for index, pair in enumerate(pairs)]
        else:
            continue
        left += reversed(inner)
    return None
