"""The contract's JSON form: it round-trips, and nothing that the schema lacks gets through."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.contract import decode
from helios.contract.json_form import from_json, to_json
from helios.errors import ContractError
from helios.schema import contract_pb2 as pb
from tests.contract.sample import sample_contract

Change = Callable[[dict[str, Any]], object]


def test_the_sample_survives_the_round_trip() -> None:
    message = sample_contract()
    again = from_json(to_json(message))
    assert again == message
    assert decode(again) == decode(message)


def test_fields_have_the_names_of_the_schema() -> None:
    content = json.loads(to_json(sample_contract()))
    assert content["max_context_tokens"] == 24
    assert content["model"]["graphs"][3]["operation"] == "OPERATION_DECODE"


def test_camel_case_is_read_too() -> None:
    assert from_json('{"maxContextTokens": 5}') == pb.ServingContract(max_context_tokens=5)


UNKNOWN: list[tuple[str, Change]] = [
    ("surprise", lambda c: c.update(surprise=1)),
    ("defaults.sampling.surprise", lambda c: c["defaults"]["sampling"].update(surprise=None)),
    ("model.surprise", lambda c: c["model"].update(surprise={"deep": []})),
    ("model.graphs[2].surprise", lambda c: c["model"]["graphs"][2].update(surprise=0)),
    (
        "model.graphs[2].bindings[1].surprise",
        lambda c: c["model"]["graphs"][2]["bindings"][1].update(surprise=False),
    ),
    (
        "model.graphs[2].bindings[1].source",
        lambda c: c["model"]["graphs"][2]["bindings"][1].update(source="VALUE_SOURCE_SURPRISE"),
    ),
    ("model.graphs[2].operation", lambda c: c["model"]["graphs"][2].update(operation=99)),
    ("model.graphs[2].operation", lambda c: c["model"]["graphs"][2].update(operation=True)),
    ("model.graphs[2].operation", lambda c: c["model"]["graphs"][2].update(operation={})),
    (
        "model.frontend.template_tokens.surprise",
        lambda c: c["model"]["frontend"]["template_tokens"].update(surprise="<x>"),
    ),
    ("maxActive", lambda c: c.update(maxActive=4)),
    ("served_id", lambda c: c.update(served_id=None)),
    ("served_id", lambda c: c.update(served_id=["sample"])),
    ("aliases", lambda c: c.update(aliases="sample")),
    ("model", lambda c: c.update(model=[])),
    ("model.graphs[0]", lambda c: c["model"].update(graphs=[1])),
    ("model.vision", lambda c: c["model"].update(vision="none")),
    ("served_id", lambda c: c.update(served_id=5)),
    ("aliases[1]", lambda c: c.update(aliases=["a", None])),
    ("aliases[0]", lambda c: c.update(aliases=[["a"]])),
    ("max_active", lambda c: c.update(max_active="4")),
    ("max_active", lambda c: c.update(max_active=4.0)),
    ("max_active", lambda c: c.update(max_active=True)),
    ("max_active", lambda c: c.update(max_active=-1)),
    ("max_active", lambda c: c.update(max_active=1 << 32)),
    ("max_active", lambda c: c.update(max_active=10**4000)),
    ("defaults.sampling.top_p", lambda c: c["defaults"]["sampling"].update(top_p="0.5")),
    ("defaults.sampling.top_p", lambda c: c["defaults"]["sampling"].update(top_p="NaN")),
    ("defaults.sampling.top_p", lambda c: c["defaults"]["sampling"].update(top_p=10**400)),
    (
        "model.graphs[2].bindings[1].offset",
        lambda c: c["model"]["graphs"][2]["bindings"][1].update(offset="1_0"),
    ),
    (
        "model.graphs[2].bindings[1].offset",
        lambda c: c["model"]["graphs"][2]["bindings"][1].update(offset=str(1 << 63)),
    ),
    (
        "model.frontend.template_tokens.add_bos_token",
        lambda c: c["model"]["frontend"]["template_tokens"].update(add_bos_token=1),
    ),
]


@pytest.mark.clause("CONTRACT-6")
@pytest.mark.parametrize(
    ("path", "change"), UNKNOWN, ids=[f"{i}-{p}" for i, (p, _) in enumerate(UNKNOWN)]
)
def test_what_the_schema_lacks_is_refused_by_its_path(path: str, change: Change) -> None:
    content = json.loads(to_json(sample_contract()))
    change(content)
    with pytest.raises(ContractError) as raised:
        from_json(json.dumps(content))
    assert raised.value.where == path


@pytest.mark.clause("CONTRACT-6")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"served_id": 5}',
        '{"max_active": -1}',
        '{"max_active": 1e99}',
        '{"served_id": "a", "served_id": "b"}',
        '{"model": {"version": 3, "version": 1}}',
        '{"model":' * 100_000,
        '{"aliases": ["' + "x" * (16 << 20) + '"]}',
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_contract_is_refused(text: str) -> None:
    with pytest.raises(ContractError):
        from_json(text)


def test_a_name_that_is_given_twice_is_refused_by_its_path() -> None:
    with pytest.raises(ContractError, match="given twice") as raised:
        from_json('{"model": {"graphs": [{}, {"name": "a", "name": "b"}]}}')
    assert raised.value.where == "model.graphs[1].name"


@pytest.mark.parametrize("offset", [-(1 << 63), -5, (1 << 63) - 1])
def test_wide_integers_are_read_as_text_and_as_numbers(offset: int) -> None:
    message = sample_contract()
    message.model.graphs[2].bindings[1].offset = offset
    content = json.loads(to_json(message))
    assert content["model"]["graphs"][2]["bindings"][1]["offset"] == str(offset)
    assert from_json(json.dumps(content)) == message
    content["model"]["graphs"][2]["bindings"][1]["offset"] = offset
    assert from_json(json.dumps(content)) == message


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model", "graphs", "served_id", "defaults", "version", "x"]), inner
        )
    ),
    max_leaves=10,
)


@given(content=_JSON)
def test_any_json_gives_a_message_or_a_contract_error(content: object) -> None:
    try:
        message = from_json(json.dumps(content))
    except ContractError:
        return
    assert isinstance(message, pb.ServingContract)
