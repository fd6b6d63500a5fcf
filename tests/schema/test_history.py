"""The schema keeps every number that it ever gave out; the check itself notices each way not to."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from schema import history

Change = Callable[[DescriptorProto, EnumDescriptorProto], object]


@pytest.mark.clause("CONTRACT-7")
def test_the_schema_keeps_its_recorded_history() -> None:
    recorded = history.read()
    assert len(recorded) > 300
    assert history.violations(recorded, history.schema_files()) == []


def test_the_history_holds_one_fact_a_line() -> None:
    lines = history.HISTORY.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("[", "]")
    assert [json.loads(line.rstrip(",")) for line in lines[1:-1]] == history.read()


def files() -> list[FileDescriptorProto]:
    found = []
    for file in history.schema_files():
        copy = FileDescriptorProto()
        copy.CopyFrom(file)
        found.append(copy)
    return found


def message(content: list[FileDescriptorProto], name: str) -> DescriptorProto:
    return next(m for file in content for m in file.message_type if m.name == name)


def enum(content: list[FileDescriptorProto], name: str) -> EnumDescriptorProto:
    return next(e for file in content for e in file.enum_type if e.name == name)


def field(holder: DescriptorProto, name: str) -> FieldDescriptorProto:
    return next(f for f in holder.field if f.name == name)


def _renumber(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    field(vocabulary, "mask_words").number = 9


def _swap(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    first, second = field(vocabulary, "mask_words"), field(vocabulary, "histogram_tokens")
    first.number, second.number = second.number, first.number


def _remove(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    vocabulary.field.remove(field(vocabulary, "mask_words"))


def _remove_value(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    operation.value.remove(next(v for v in operation.value if v.number == 6))


def _reserve_number(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    _remove(vocabulary, operation)
    vocabulary.reserved_range.add(start=3, end=4)


def _reserve_name(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    _remove(vocabulary, operation)
    vocabulary.reserved_name.append("mask_words")


def _reuse(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    _reserve_name(vocabulary, operation)
    again = vocabulary.field.add(name="other", number=3)
    again.type = FieldDescriptorProto.TYPE_UINT32
    again.label = FieldDescriptorProto.LABEL_OPTIONAL


def _retype(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    field(vocabulary, "mask_words").type = FieldDescriptorProto.TYPE_UINT64


def _repeat(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    field(vocabulary, "mask_words").label = FieldDescriptorProto.LABEL_REPEATED


def _rename_value(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    next(v for v in operation.value if v.number == 6).name = "OPERATION_ELSE"


def _add(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    operation.value.add(name="OPERATION_MORE", number=12)


def _alias(vocabulary: DescriptorProto, operation: EnumDescriptorProto) -> None:
    operation.options.allow_alias = True
    known = list(operation.value)
    del operation.value[:]
    operation.value.add(name="OPERATION_ELSE", number=6)
    operation.value.extend(known)


BROKEN: list[tuple[Change, list[str]]] = [
    (_renumber, ["Vocabulary 3 (mask_words) is gone", "Vocabulary 9 (mask_words) isn't recorded"]),
    (_swap, ["Vocabulary 2 was histogram_tokens", "Vocabulary 3 was mask_words"]),
    (_remove, ["Vocabulary 3 (mask_words) is gone without being reserved"]),
    (_remove_value, ["Operation 6 (OPERATION_RESUME) is gone without being reserved"]),
    (_reserve_number, ["Vocabulary 3 (mask_words) is gone without being reserved"]),
    (_reserve_name, ["Vocabulary 3 (mask_words) is gone without being reserved"]),
    (_reuse, ["Vocabulary 3 was mask_words (uint32), now other (uint32)"]),
    (_retype, ["Vocabulary 3 was mask_words (uint32), now mask_words (uint64)"]),
    (_repeat, ["Vocabulary 3 was mask_words (uint32), now mask_words (repeated uint32)"]),
    (_rename_value, ["Operation 6 was OPERATION_RESUME"]),
    (_alias, ["Operation 6 (OPERATION_ELSE) is another name of a number"]),
    (_add, ["Operation 12 (OPERATION_MORE) isn't recorded"]),
]


@pytest.mark.clause("CONTRACT-7")
@pytest.mark.parametrize(("change", "found"), BROKEN, ids=[c.__name__ for c, _ in BROKEN])
def test_a_change_of_the_past_is_found(change: Change, found: list[str]) -> None:
    content = files()
    change(message(content, "Vocabulary"), enum(content, "Operation"))
    violations = history.violations(list(history.facts(history.schema_files())), content)
    assert len(violations) == len(found)
    for violation, start in zip(violations, found, strict=True):
        assert violation.startswith(start)


@pytest.mark.clause("CONTRACT-7")
def test_numbers_are_given_up_by_reserving_them_with_their_names() -> None:
    content = files()
    vocabulary, operation = message(content, "Vocabulary"), enum(content, "Operation")
    _reserve_number(vocabulary, operation)
    vocabulary.reserved_name.append("mask_words")
    _remove_value(vocabulary, operation)
    operation.reserved_range.add(start=6, end=6)
    operation.reserved_name.append("OPERATION_RESUME")
    assert history.violations(list(history.facts(history.schema_files())), content) == []


def test_a_number_that_is_recorded_twice_is_found() -> None:
    recorded = history.read()
    assert history.violations([*recorded, recorded[0]], history.schema_files()) == [
        "the history records a number twice"
    ]
