"""Tools over HTTP: which calls are looked for, which are made certain, and how answers end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from helios.worker.messages import Finish
from tests.frontend.response.test_function_tags import QWEN
from tests.frontend.response.test_json_calls import HERMES
from tests.server.desk import CORE, PATH, TOOLS, Desk, call, desk_of
from tests.server.syntaxes import chat, core, functions


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    yield from desk_of(CORE)


def test_markup_without_tools_is_content(desk: Desk) -> None:
    text = f"The marker `<tool_call>` starts one: {call('add', a=1)}"
    for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        desk.says(text)
        choice = desk.ask(**more)
        assert choice["message"]["content"] == text
        assert choice["finish_reason"] == "stop"
        assert "add" not in desk.prompt, "and its template sees no tools"


@pytest.mark.parametrize(
    ("choice", "finish"),
    [
        (None, "tool_calls"),
        ("auto", "tool_calls"),
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "add"}}, "stop"),
        ({"type": "function", "name": "add"}, "stop"),
    ],
)
def test_a_call_ends_an_answer_as_its_choice_says(desk: Desk, choice: Any, finish: str) -> None:
    desk.says(call("add", a=1))
    assert desk.ask(tools=TOOLS, tool_choice=choice)["finish_reason"] == finish
    desk.says(call("add", a=1), finish=Finish.LIMIT)
    assert desk.ask(tools=TOOLS, tool_choice=choice)["finish_reason"] == "length"
    desk.says(call("add", a=1).removesuffix("</function>\n</tool_call>"))
    assert desk.ask(tools=TOOLS, tool_choice=choice)["finish_reason"] in ("stop", finish)


@pytest.mark.clause("FRONT-13")
def test_a_call_that_breaks_off_is_no_reason_to_end(desk: Desk) -> None:
    desk.says("<tool_call>\n<function=say>\n<parameter=text>\nabc")
    choice = desk.ask(tools=TOOLS)
    (made,) = choice["message"]["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"text": "abc"}
    assert choice["finish_reason"] == "stop"


def allowed(*names: str, mode: str = "auto") -> dict[str, Any]:
    """A choice that leaves some tools to call."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def _constrained(desk: Desk, **more: Any) -> bool:
    body = chat(**more)
    response = desk.server.http.post("/v1/render", json=body)
    assert response.status_code == 200, response.text
    return bool(response.json()["constrained"])


STRICT = functions({"add": {"a": {"type": "integer"}}}, strict=True)


@pytest.mark.parametrize(
    ("more", "constrained"),
    [
        ({}, False),
        ({"tools": TOOLS}, False),
        ({"tools": TOOLS, "tool_choice": "required"}, True),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "say"}}}, True),
        ({"tools": TOOLS, "tool_choice": "none"}, False),
        ({"tools": TOOLS, "tool_choice": allowed("add", "say")}, False),
        ({"tools": TOOLS, "tool_choice": allowed("add")}, True),
        ({"tools": TOOLS, "tool_choice": allowed("add", "say", mode="required")}, True),
        ({"tools": TOOLS, "parallel_tool_calls": True}, False),
        ({"tools": TOOLS, "parallel_tool_calls": False}, True),
        ({"parallel_tool_calls": False}, False),
        ({"tools": STRICT}, True),
        ({"tools": STRICT, "tool_choice": "none"}, False),
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": {"type": "text"}}, False),
        ({"guided_choice": ["a", "b"]}, True),
        ({"structured_outputs": {"regex": "a+"}}, True),
        ({"structural_tag": {"format": {"type": "any_text"}}}, True),
        ({"thinking_token_budget": 5}, True),
        ({"thinking_token_budget": -1}, False),
        ({"thinking": {"type": "enabled"}}, False),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, True),
        ({"reasoning_effort": "low"}, False),
    ],
    ids=str,
)
def test_what_needs_a_grammar(desk: Desk, more: dict[str, Any], constrained: bool) -> None:
    assert _constrained(desk, **more) is constrained


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": allowed("add")}, "tool_choice"),
        ({"tools": TOOLS, "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": STRICT}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"thinking_token_budget": 5}, "thinking_token_budget"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
    ],
    ids=str,
)
def test_programs_without_masks_refuse_by_name(more: dict[str, Any], param: str) -> None:
    for old in desk_of(core(QWEN, masks=False)):
        old.says(call("add", a=1))
        assert old.ask(tools=TOOLS)["finish_reason"] == "tool_calls"
        error = old.server.http.post(PATH, json=chat(**more)).json()["error"]
        assert (error["param"], error["code"]) == (param, "unsupported_parameter")


def test_a_schema_that_no_grammar_can_be_made_of_is_named(desk: Desk) -> None:
    tools = [*TOOLS, *functions({"odd": {"a": {"not": {}}}})]
    body = chat(tools=tools, tool_choice="required")
    error = desk.server.http.post(PATH, json=body).json()["error"]
    place = f"tools[{len(TOOLS)}].function.parameters.properties.a"
    assert (error["param"], error["code"]) == (place, "invalid_value")
    assert "kept to: not" in error["message"]
    desk.says("ok")
    assert desk.ask(tools=tools)["message"]["content"] == "ok", "nothing is made of it unasked"


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        (allowed("add", "nope"), "tool_choice.allowed_tools.tools[1]"),
        (allowed(), "tool_choice.allowed_tools.tools"),
        (allowed("add", mode="none"), "tool_choice.allowed_tools.mode"),
        ({"type": "allowed_tools"}, "tool_choice.mode"),
        ({"type": "allowed_tools", "allowed_tools": []}, "tool_choice.allowed_tools"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [5]}, "tool_choice.tools[0]"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]},
            "tool_choice.tools[0].type",
        ),
        ({"type": "custom", "custom": {"name": "add"}}, "tool_choice"),
        ({"type": "function", "function": {"name": "nope"}}, "tool_choice"),
    ],
    ids=str,
)
def test_choices_that_cannot_be_are_refused_by_their_place(
    desk: Desk, choice: dict[str, Any], param: str
) -> None:
    refused = desk.server.http.post(PATH, json=chat(tools=TOOLS, tool_choice=choice))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_the_model_reads_of_all_tools_and_calls_those_that_it_may(desk: Desk) -> None:
    desk.says(call("add", a=1))
    choice = desk.ask(tools=TOOLS, tool_choice=allowed("add"))
    assert "say" in desk.prompt
    (made,) = choice["message"]["tool_calls"]
    assert (made["function"]["name"], choice["finish_reason"]) == ("add", "tool_calls")
    short = {"type": "allowed_tools", "mode": "required", "tools": [{"name": "say"}]}
    assert _constrained(desk, tools=TOOLS, tool_choice=short)


@pytest.mark.parametrize(
    ("begin", "tools", "calls"),
    [("<tool_call>\n", TOOLS, 1), ("<tool_call>\n", [], 0), ("<a>", TOOLS, 0)],
)
def test_calls_count_in_tags_that_write_them(
    desk: Desk, begin: str, tools: list[Any], calls: int
) -> None:
    tag = {"begin": begin, "content": {"type": "any_text"}, "end": "</tool_call>"}
    form = {"type": "triggered_tags", "triggers": [begin.strip()], "tags": [tag]}
    text = f"so {call('add', a=1)}"
    desk.says(text)
    asked = {"response_format": {"type": "structural_tag", "format": form}, "tools": tools}
    message = desk.ask(**asked)["message"]
    assert len(message.get("tool_calls") or []) == calls
    assert message["content"] == ("so" if calls else text)


def test_a_structured_answer_after_a_prompt_that_ends_reasoning() -> None:
    """I03: neither is the form forgotten, nor the answer taken for reasoning."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    for hermes in desk_of(core(HERMES)):
        hermes.says('{"x": "</think><tool_call>"}')
        message = hermes.ask(response_format=form)["message"]
        assert json.loads(message["content"]) == {"x": "</think><tool_call>"}
        assert "reasoning_content" not in message
