"""The schema's recorded history: every field and enumeration number that ever meant something.

`schema/history.json` holds one fact a line and only grows: a number keeps its name, type and
cardinality for ever, and one that is given up must be `reserved` with its name. `violations` is
what tests/schema runs; `python schema/history.py --record` adds the facts that are new, and
refuses to touch the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

HISTORY: Final = Path(__file__).with_name("history.json")
MODULES: Final = ("contract_pb2", "core_pb2", "execution_pb2")

# A fact: {"in": message or enumeration, "number": …, "name": …, "type": …}; the type of an
# enumeration's value is "value".
Fact = Mapping[str, str | int]


def facts(files: Iterable[FileDescriptorProto]) -> Iterator[Fact]:
    """Every number that the files define, in their order."""
    for file in files:
        for message in file.message_type:
            yield from _message_facts(message, message.name)
        for enum in file.enum_type:
            yield from _enum_facts(enum, enum.name)


def violations(history: Sequence[Fact], files: Sequence[FileDescriptorProto]) -> list[str]:
    """What the files do that the history forbids, or that it hasn't recorded yet."""
    present_facts = list(facts(files))
    now = {(fact["in"], fact["number"]): fact for fact in present_facts}
    then = {(fact["in"], fact["number"]): fact for fact in history}
    found = [
        f"{fact['in']} {fact['number']} ({fact['name']}) is another name of a number"
        for fact in present_facts
        if now[fact["in"], fact["number"]] != fact
    ]
    if len(then) != len(history):
        found.append("the history records a number twice")
    reserved = dict(_reservations(files))
    for key, fact in then.items():
        present = now.get(key)
        place = f"{key[0]} {key[1]}"
        if present is None:
            spans, names = reserved.get(str(key[0]), ((), ()))
            if fact["name"] not in names or not any(key[1] in span for span in spans):
                found.append(f"{place} ({fact['name']}) is gone without being reserved")
        elif present != fact:
            found.append(
                f"{place} was {fact['name']} ({fact['type']}), now {present['name']}"
                f" ({present['type']})"
            )
    found += [
        f"{fact['in']} {fact['number']} ({fact['name']}) isn't recorded: run"
        " python schema/history.py --record"
        for key, fact in now.items()
        if key not in then
    ]
    return found


def read() -> list[Fact]:
    """The recorded facts."""
    content: list[Fact] = json.loads(HISTORY.read_text())
    return content


def write(history: Sequence[Fact]) -> None:
    """Writes the facts, one a line, so that any change of an old one shows as such."""
    lines = ",\n".join(json.dumps(dict(fact)) for fact in history)
    HISTORY.write_text(f"[\n{lines}\n]\n")


def schema_files() -> list[FileDescriptorProto]:
    """The schema as the generated modules have it."""
    from importlib import import_module

    files = []
    for name in MODULES:
        file = FileDescriptorProto()
        import_module(f"helios.schema.{name}").DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return files


def _message_facts(message: DescriptorProto, name: str) -> Iterator[Fact]:
    for field in message.field:
        yield {"in": name, "number": field.number, "name": field.name, "type": _type(field)}
    for nested in message.nested_type:
        yield from _message_facts(nested, f"{name}.{nested.name}")
    for enum in message.enum_type:
        yield from _enum_facts(enum, f"{name}.{enum.name}")


def _enum_facts(enum: EnumDescriptorProto, name: str) -> Iterator[Fact]:
    for value in enum.value:
        yield {"in": name, "number": value.number, "name": value.name, "type": "value"}


def _type(field: FieldDescriptorProto) -> str:
    """Type, cardinality and presence: what must not change under a number."""
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.type_name:
        kind = field.type_name.rsplit(".", 1)[-1]
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {kind}"
    if field.proto3_optional:
        return f"optional {kind}"
    return f"oneof {kind}" if field.HasField("oneof_index") else kind


def _reservations(
    files: Iterable[FileDescriptorProto],
) -> Iterator[tuple[str, tuple[Sequence[range], Sequence[str]]]]:
    """Reserved numbers and names of each message and enumeration."""
    for file in files:
        for message in file.message_type:
            spans = [range(r.start, r.end) for r in message.reserved_range]
            yield message.name, (spans, message.reserved_name)
        for enum in file.enum_type:
            # Unlike a message's, an enumeration's ranges include their end.
            spans = [range(r.start, r.end + 1) for r in enum.reserved_range]
            yield enum.name, (spans, enum.reserved_name)


def main() -> int:
    """Records what is new; 1 where the schema breaks its history."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="add what is new to history.json")
    record = parser.parse_args().record
    files = schema_files()
    history = read() if HISTORY.exists() else []
    if record:
        known = {(fact["in"], fact["number"]) for fact in history}
        history += [fact for fact in facts(files) if (fact["in"], fact["number"]) not in known]
    found = violations(history, files)
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    if record:
        write(history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
