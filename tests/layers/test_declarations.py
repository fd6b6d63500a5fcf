"""Recipes declare: nothing in the contract or a recipe can bring scheduling or state code along."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from tests.contract.sample import sample_contract

import ignition.recipes
from helios.contract import decode
from helios.contract.enums import ValueSource
from helios.schema import contract_pb2

RECIPES = Path(ignition.recipes.__file__).resolve().parent
# What a recipe may use of Helios: the schema, the kernel catalogue, the errors.
ALLOWED = {"helios.errors", "helios.schema", "helios.kernels"}


@pytest.mark.clause("CONTRACT-8", "CONTRACT-9")
def test_a_contract_holds_declarations_only() -> None:
    """No opaque bytes, no map of options, no message from outside: nothing to hide a policy in."""
    messages = contract_pb2.DESCRIPTOR.message_types_by_name.values()
    fields = [field for message in messages for field in message.fields]
    assert len(fields) > 100
    for field in fields:
        assert field.type != FieldDescriptor.TYPE_BYTES, field.full_name
        if field.message_type is not None:
            assert not field.message_type.GetOptions().map_entry, field.full_name
            assert field.message_type.file.name == contract_pb2.DESCRIPTOR.name, field.full_name


@pytest.mark.clause("CONTRACT-9")
def test_recipes_import_no_scheduling_or_state_code() -> None:
    sources = list(RECIPES.glob("*.py"))
    assert len(sources) > 1
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                if name.split(".")[0] == "helios":
                    assert ".".join(name.split(".")[:2]) in ALLOWED, f"{source.name}: {name}"


@pytest.mark.clause("CONTRACT-9")
def test_one_value_source_may_fill_several_destinations() -> None:
    graph = decode(sample_contract()).model.graphs[1]
    bound = [b.destination for b in graph.bindings if b.source is ValueSource.SLOT]
    assert bound == ["slot", "token_slot"]
