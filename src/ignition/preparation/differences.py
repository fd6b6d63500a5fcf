"""Where two contents or two messages differ, field by field and buffer by buffer.

Knows nothing of tools or of why: `comparison` is the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from google.protobuf.message import Message

from helios.contract.fields import join
from helios.core import ResourceKind
from helios.schema import core_pb2, execution_pb2

# More of one message would hide the others.
MOST_FIELDS: Final = 8
_MOST_BUFFERS: Final = 8
_VALUE_WIDTH: Final = 60
_MESSAGES: Final[Mapping[ResourceKind, type[Message]]] = {
    ResourceKind.EXECUTION_MANIFEST: execution_pb2.ExecutionManifest,
    ResourceKind.ORACLE: core_pb2.Oracle,
}


def content_differences(kind: ResourceKind, old: bytes, new: bytes) -> Iterator[tuple[str, str]]:
    """Where two contents of a kind differ, and how: fields of messages, else the first byte."""
    message = _MESSAGES.get(kind)
    if message is not None:
        pair = message.FromString(old), message.FromString(new)
        named = list(islice(message_differences(*pair), MOST_FIELDS))
        if named:
            yield from named
            return
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    at = min(len(old), len(new)) if first is None else first
    yield "", f"{len(old)} bytes, rebuilt as {len(new)}, differ from byte {at} on"


def message_differences(old: Message, new: Message, where: str = "") -> Iterator[tuple[str, str]]:
    """The path of every field that differs, with both values, in the schema's order."""
    for field in old.DESCRIPTOR.fields:
        path, mine, theirs = (
            join(where, field.name),
            getattr(old, field.name),
            getattr(new, field.name),
        )
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in sorted({*mine, *theirs}):
                yield from _values(mine.get(key), theirs.get(key), f"{path}[{key!r}]")
        elif field.is_repeated:
            if len(mine) != len(theirs):
                yield path, f"{len(mine)} entries, rebuilt as {len(theirs)}"
            for index, (a, b) in enumerate(zip(mine, theirs, strict=False)):
                yield from _values(a, b, f"{path}[{index}]")
        elif field.has_presence and old.HasField(field.name) != new.HasField(field.name):
            yield path, f"{_presence(old, field.name)}, rebuilt {_presence(new, field.name)}"
        else:
            yield from _values(mine, theirs, path)


def _values(old: Any, new: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(old, Message):
        yield from message_differences(old, new, path)
    elif old != new:
        yield path, f"{_shown(old)}, rebuilt as {_shown(new)}"


def _presence(message: Message, field: str) -> str:
    return "present" if message.HasField(field) else "absent"


def _shown(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 1]}…"


def differing_buffers(
    buffers: Sequence[execution_pb2.Buffer], old: memoryview, new: memoryview
) -> str:
    """Which buffers of a weight resource differ."""
    names = [
        buffer.name
        for buffer in buffers
        if old[buffer.offset :][: buffer.nbytes] != new[buffer.offset :][: buffer.nbytes]
    ]
    if not names:
        return f"{len(old)} bytes, rebuilt as {len(new)}, differ outside of every buffer"
    more = f" and {len(names) - _MOST_BUFFERS} more" if len(names) > _MOST_BUFFERS else ""
    return f"differs in {', '.join(names[:_MOST_BUFFERS])}{more}"
