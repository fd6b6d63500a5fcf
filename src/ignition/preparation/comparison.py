"""Compares two cores in everything but the signature, and says where a difference comes from.

A difference that a tool of another recorded version explains is told apart from one that nothing
explains. Both cores are open, so signatures are verified; reading their resources verifies those.
`rebuild` is the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from google.protobuf.message import Message

from helios.core import OpenedCore, ResourceKind
from helios.core.envelope import VerifiedEnvelope
from helios.core.format import INDEX_VERSION_SEALED
from helios.core.resources import FrameResource, SealedResource, WeightResource
from helios.schema import execution_pb2
from ignition.preparation.differences import (
    MOST_FIELDS,
    content_differences,
    differing_buffers,
    message_differences,
)
from ignition.preparation.export import serialized
from ignition.preparation.recorded_options import completed
from ignition.preparation.serving import COMPRESSOR, GENERATOR

_COMPRESSORS: Final = frozenset({COMPRESSOR, "zstandard"})


class Verdict(Enum):
    """What a comparison comes to."""

    SAME = "the same but for the signature"
    SAME_CONTENT = "the same content, where it could be compared"
    OTHER_TOOLS = "different, as other tool versions explain"
    DIFFERENT = "different"


@dataclass(frozen=True)
class Difference:
    """One resource or field that differs. `causes` names the tools of another recorded version
    that may be why; without any, nothing explains it."""

    where: str
    what: str
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """`public_key` signed the core. `tools` holds what was recorded and what is used now, for each
    tool that differs; None where the core doesn't record it, or where none is used. `left_out`
    says what couldn't be compared, and why."""

    public_key: bytes
    tools: Mapping[str, tuple[str | None, str | None]]
    differences: tuple[Difference, ...]
    left_out: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The whole in one word."""
        if not self.differences:
            return Verdict.SAME_CONTENT if self.left_out else Verdict.SAME
        if all(difference.causes for difference in self.differences):
            return Verdict.OTHER_TOOLS
        return Verdict.DIFFERENT


def compare(core: OpenedCore, rebuilt: OpenedCore, envelope: VerifiedEnvelope) -> Comparison:
    """How `rebuilt` differs from `core`, which may be sealed and whose envelope is given too.
    Raises CoreError where a resource can't be read."""
    tools = _changed_tools(core.deployment.rebuild.tools, rebuilt.deployment.rebuild.tools)
    comparer = _Comparer(core, rebuilt, tools)
    differences = tuple(comparer.differences())
    if not differences and serialized(envelope.body) != envelope.content:
        # One message has many spellings, and the signature is over one of them.
        differences = (Difference("the signed message", "is spelled in another way"),)
    return Comparison(core.acceptance.public_key, tools, differences, _left_out(core))


def _changed_tools(
    old: Mapping[str, str], new: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    pairs = {name: (old.get(name), new.get(name)) for name in sorted({*old, *new})}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _left_out(core: OpenedCore) -> tuple[str, ...]:
    if not _is_sealed(core):
        return ()
    count = len(core.decoded.executables) + len(core.decoded.weights)
    return (
        f"the carrier: index version {INDEX_VERSION_SEALED} is read by this Ignition and not"
        " written, so the core can't be made again byte for byte",
        f"the stored bytes of {count} resources: nobody else can seal them; their decrypted"
        " content was compared",
    )


def _is_sealed(core: OpenedCore) -> bool:
    return core.decoded.key_id is not None


class _Comparer:
    def __init__(
        self,
        core: OpenedCore,
        rebuilt: OpenedCore,
        changed: Mapping[str, tuple[str | None, str | None]],
    ) -> None:
        self._core = core
        self._rebuilt = rebuilt
        # What isn't recorded explains nothing: nobody knows that it was another. But for the
        # generator: every Ignition records itself, except those older than its doing so.
        known = [
            name
            for name, (recorded, used) in changed.items()
            if used and (recorded or name == GENERATOR)
        ]
        self._compressors = tuple(name for name in known if name in _COMPRESSORS)
        self._makers = tuple(name for name in known if name not in _COMPRESSORS)

    def differences(self) -> Iterator[Difference]:
        """Resources first, since fields follow from them; then the signed message's fields."""
        resources = [*self._executables(), *self._weights()]
        yield from resources
        for difference in self._fields():
            if difference.where.endswith("contract.cache_identity"):
                # Made of the stored bytes of weights and launches: it differs as they do, and in
                # a sealed core, which doesn't keep the frames, as their compressor does.
                if resources:
                    continue
                causes = (*self._makers, *(self._compressors if _is_sealed(self._core) else ()))
                yield Difference(difference.where, difference.what, causes)
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
            elif isinstance(mine, FrameResource) and mine != theirs:
                assert isinstance(theirs, FrameResource)
                yield self._compressed(where, mine, theirs)

    def _compressed(self, where: str, mine: FrameResource, theirs: FrameResource) -> Difference:
        reason = "another compressor" if self._compressors else "no other compressor is recorded"
        return Difference(
            where,
            f"the same content, compressed to {mine.stored_nbytes} other bytes than the"
            f" {theirs.stored_nbytes} rebuilt: {reason}",
            self._compressors,
        )

    def _weights(self) -> Iterator[Difference]:
        old, new = self._core.decoded.weights, self._rebuilt.decoded.weights
        yield from self._ids(old, new)
        for name in [name for name in old if name in new]:
            mine, theirs = self._core.map_weights(name), self._rebuilt.map_weights(name)
            try:
                if _differ(old[name], new[name], mine.content, theirs.content):
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
        if old.keys() == new.keys() and list(old) != list(new):
            yield self._content(
                "resources", f"are in the order {list(old)}, rebuilt as {list(new)}"
            )

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
            if mine != theirs and not (label == "carrier" and _is_sealed(self._core)):
                yield self._content(label, f"{mine!r}, rebuilt as {theirs!r}")
        old, new = _prepared(self._core), _prepared(self._rebuilt)
        named = list(islice(message_differences(old, new, "deployment"), MOST_FIELDS))
        yield from (self._content(path, what) for path, what in named)
        if not named and serialized(old) != serialized(new):
            yield self._content("deployment", "differs in fields that this version doesn't know")

    def _content(self, where: str, what: str) -> Difference:
        return Difference(where, what, self._makers)


def _differ(
    old: WeightResource | SealedResource,
    new: WeightResource | SealedResource,
    mine: memoryview,
    theirs: memoryview,
) -> bool:
    """Whether two weight resources hold other bytes: by their digests where both have them."""
    if isinstance(old, WeightResource) and isinstance(new, WeightResource):
        return old != new
    return mine != theirs


def _prepared(core: OpenedCore) -> Message:
    """The deployment without what is compared apart, options that weren't recorded filled in."""
    message = type(core.deployment)()
    message.CopyFrom(core.deployment)  # type: ignore[arg-type]
    message.rebuild.ClearField("tools")
    message.rebuild.options.update(completed(message.rebuild.options))
    return message
