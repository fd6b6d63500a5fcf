"""What a request may say beside an answer of a form, and beside calls that are certain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.desk import CORE, PATH, TOOLS, Desk, call, desk_of
from tests.server.syntaxes import chat, functions

FORM = {"guided_regex": "[a-z]+"}
REQUIRED = {"tools": TOOLS, "tool_choice": "required"}
NAMED = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "say"}}}
STRICT = {"tools": [*TOOLS, *functions({"odd": {"a": {"type": "integer"}}}, strict=True)]}
ONE = {"tools": TOOLS, "parallel_tool_calls": False}
BUDGET = {"thinking_token_budget": 5}
(TEXT,) = CORE.tokenizer.encode("a")
(MARKER,) = CORE.tokenizer.encode("</tool_call>")
STRINGS = {"stop": ["."]}
TEXT_ID = {"stop_token_ids": [MARKER, TEXT]}
TEXTS = {"stop_token_sequences": [[TEXT, MARKER], [TEXT, TEXT]]}


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    yield from desk_of(CORE)


@pytest.mark.parametrize("certain", [REQUIRED, NAMED, STRICT, FORM], ids=repr)
@pytest.mark.parametrize(
    ("more", "param"),
    [(STRINGS, "stop"), (TEXT_ID, "stop_token_ids[1]"), (TEXTS, "stop_token_sequences[1]")],
    ids=repr,
)
def test_what_could_only_break_a_form_is_refused(
    desk: Desk, certain: dict[str, Any], more: dict[str, Any], param: str
) -> None:
    response = desk.server.http.post(PATH, json=chat(**certain, **more))
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, "invalid_value")
    promised = {
        str(REQUIRED): "tool_choice",
        str(NAMED): "tool_choice",
        str(STRICT): "tools[2].function.strict",
        str(FORM): "guided_regex",
    }[str(certain)]
    assert promised in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"tools": TOOLS, **STRINGS},
        {**STRICT, "tool_choice": "none", **STRINGS},
        {**ONE, **STRINGS},
        {**BUDGET, **STRINGS},
        {**ONE, **TEXT_ID},
        {**REQUIRED, "stop_token_ids": [MARKER]},
        {**FORM, "stop_token_ids": [MARKER]},
        {**FORM, "stop_token_sequences": [[TEXT, MARKER]]},
        {**FORM, "ignore_eos": True},
    ],
    ids=repr,
)
def test_what_leaves_a_form_alone_is_not(desk: Desk, body: dict[str, Any]) -> None:
    desk.says("ok")
    response = desk.server.http.post(PATH, json=chat(**body))
    assert response.status_code == 200, response.text


def test_a_marker_that_stops_ends_after_one_call(desk: Desk) -> None:
    desk.says(call("add", a=1).removesuffix("</tool_call>"))
    (made,) = desk.ask(**REQUIRED, stop_token_ids=[MARKER])["message"]["tool_calls"]
    assert made["function"] == {"name": "add", "arguments": '{"a":1}'}
