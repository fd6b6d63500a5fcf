"""Compares two cores in everything but the signature, and says where a difference comes from.

A difference that a tool of another version explains is told apart from one that nothing explains.
Both cores are open, so signatures are verified; reading their resources verifies those. `rebuild`
is the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final

from google.protobuf.message import Message

from helios.contract.fields import join
from helios.core import OpenedCore, ResourceKind
from helios.core.resources import FrameResource
from helios.schema import core_pb2, execution_pb2
from ignition.preparation.export import serialized
from ignition.preparation.serving import COMPRESSOR

# More of one message would hide the others.
_MOST_FIELDS: Final = 8
_MOST_BUFFERS: Final = 8
_VALUE_WIDTH: Final = 60
_COMPRESSORS: Final = frozenset({COMPRESSOR, "zstandard"})
_MESSAGES: Final[Mapping[ResourceKind, type[Message]]] = {
    ResourceKind.EXECUTION_MANIFEST: execution_pb2.ExecutionManifest,
    ResourceKind.ORACLE: core_pb2.Oracle,
}


class Verdict(Enum):
    """What a comparison comes to."""

    SAME = "the same but for the signature"
    OTHER_TOOLS = "different, as other tool versions explain"
    DIFFERENT = "different"


@dataclass(frozen=True)
class Difference:
    """One resource or field that differs. `explained`: a tool of another version may be why."""

    where: str
    what: str
    explained: bool


@dataclass(frozen=True)
class Comparison:
    """`public_key` signed the core. `tools` holds what was recorded and what is used now, for each
    tool that differs."""

    public_key: bytes
    tools: Mapping[str, tuple[str, str]]
    differences: tuple[Difference, ...]

    @property
    def verdict(self) -> Verdict:
        """The whole in one word."""
        if not self.differences:
            return Verdict.SAME
        if all(difference.explained for difference in self.differences):
            return Verdict.OTHER_TOOLS
        return Verdict.DIFFERENT


def compare(core: OpenedCore, rebuilt: OpenedCore) -> Comparison:
    """How `rebuilt` differs from `core`. Raises CoreError where a resource can't be read."""
    tools = _changed_tools(core.deployment.rebuild.tools, rebuilt.deployment.rebuild.tools)
    comparer = _Comparer(core, rebuilt, frozenset(tools))
    return Comparison(core.acceptance.public_key, tools, tuple(comparer.differences()))


def _changed_tools(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = sorted({*old, *new})
    pairs = {name: (old.get(name, "not recorded"), new.get(name, "not used")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


class _Comparer:
    def __init__(self, core: OpenedCore, rebuilt: OpenedCore, changed: frozenset[str]) -> None:
        self._core = core
        self._rebuilt = rebuilt
        self._changed = changed

    def differences(self) -> Iterator[Difference]:
        """Resources first, since fields follow from them; then the signed message's fields."""
        resources = [*self._executables(), *self._weights()]
        yield from resources
        fields = [*self._fields()]
        for difference in fields:
            # Names the weights and launches, hence differs if and only if they do.
            if difference.where.endswith("contract.cache_identity") and resources:
                continue
            yield difference

    def _executables(self) -> Iterator[Difference]:
        old, new = self._core.decoded.executables, self._rebuilt.decoded.executables
        yield from self._ids(old, new)
        for name in [name for name in old if name in new]:
            where = f"resource {name!r}"
            mine, theirs = old[name], new[name]
            if mine.kind is not theirs.kind:
                yield self._content(
                    where, f"is {mine.kind.name}, was rebuilt as {theirs.kind.name}"
                )
                continue
            content = self._core.read_resource(name, mine.kind)
            again = self._rebuilt.read_resource(name, theirs.kind)
            if content != again:
                for path, what in content_differences(mine.kind, content, again):
                    yield self._content(f"{where}, {path}" if path else where, what)
            elif mine != theirs:
                yield self._compressed(where, mine, theirs)

    def _compressed(self, where: str, mine: Any, theirs: Any) -> Difference:
        assert isinstance(mine, FrameResource)
        assert isinstance(theirs, FrameResource)
        explained = bool(self._changed & _COMPRESSORS)
        reason = "another compressor" if explained else "though the compressor is the same"
        return Difference(
            where,
            f"the same content, compressed to {mine.stored_nbytes} other bytes than the"
            f" {theirs.stored_nbytes} rebuilt: {reason}",
            explained,
        )

    def _weights(self) -> Iterator[Difference]:
        old, new = self._core.decoded.weights, self._rebuilt.decoded.weights
        yield from self._ids(old, new)
        for name in [name for name in old if name in new]:
            mine, theirs = self._core.map_weights(name), self._rebuilt.map_weights(name)
            try:
                if old[name] != new[name]:
                    buffers = self._buffers_of(name)
                    differing = differing_buffers(buffers, mine.content, theirs.content)
                    yield self._content(f"resource {name!r}", differing)
            finally:
                mine.close()
                theirs.close()

    def _buffers_of(self, resource: str) -> list[execution_pb2.Buffer]:
        """The buffers that lie in a weight resource, by the manifests that name it."""
        found = []
        for target in self._core.targets.values():
            for rank in target.ranks:
                if resource in rank.weight_resources:
                    content = self._core.read_resource(
                        rank.manifest_resource, ResourceKind.EXECUTION_MANIFEST
                    )
                    manifest = execution_pb2.ExecutionManifest.FromString(content)
                    found += [b for b in manifest.buffers if b.resource == resource]
        return found

    def _ids(self, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Difference]:
        for name in old:
            if name not in new:
                yield self._content(f"resource {name!r}", "isn't made again")
        for name in new:
            if name not in old:
                yield self._content(f"resource {name!r}", "is made now and wasn't there")

    def _fields(self) -> Iterator[Difference]:
        for label, mine, theirs in (
            ("publisher.namespace", self._core.decoded.namespace, self._rebuilt.decoded.namespace),
            (
                "publisher.licence_terms",
                self._core.decoded.licence_terms,
                self._rebuilt.decoded.licence_terms,
            ),
            ("carrier", self._core.decoded.carrier, self._rebuilt.decoded.carrier),
        ):
            if mine != theirs:
                yield self._content(label, f"{mine!r}, rebuilt as {theirs!r}")
        old, new = _without_tools(self._core), _without_tools(self._rebuilt)
        named = list(islice(message_differences(old, new, "deployment"), _MOST_FIELDS))
        yield from (self._content(path, what) for path, what in named)
        if not named and serialized(old) != serialized(new):
            yield self._content("deployment", "differs in fields that this version doesn't know")

    def _content(self, where: str, what: str) -> Difference:
        return Difference(where, what, bool(self._changed))


def _without_tools(core: OpenedCore) -> Message:
    message = type(core.deployment)()
    message.CopyFrom(core.deployment)  # type: ignore[arg-type]
    message.rebuild.ClearField("tools")
    return message


def content_differences(kind: ResourceKind, old: bytes, new: bytes) -> Iterator[tuple[str, str]]:
    """Where two contents of a kind differ, and how: fields of messages, else the first byte."""
    message = _MESSAGES.get(kind)
    if message is not None:
        pair = message.FromString(old), message.FromString(new)
        named = list(islice(message_differences(*pair), _MOST_FIELDS))
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


def differing_buffers(buffers: list[execution_pb2.Buffer], old: memoryview, new: memoryview) -> str:
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
