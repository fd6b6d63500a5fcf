"""Reasoning over HTTP: what templates are told, and what clients see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from helios.server.calls import chat_call
from tests.server.desk import CORE, PATH, THINKS, TOOLS, Desk, call, desk_of
from tests.server.syntaxes import chat


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    yield from desk_of(CORE)


def test_reasoning_is_hidden_where_nobody_wants_it(desk: Desk) -> None:
    desk.says("so</think>\n\nyes")
    more = {**THINKS, "include_reasoning": False}
    message = desk.ask(**more)["message"]
    assert (message["content"], "reasoning_content" in message) == ("yes", False)
    deltas = desk.deltas(**more)
    assert not any("reasoning_content" in delta for delta in deltas)
    assert "".join(delta.get("content", "") for delta in deltas) == "yes"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_earlier_reasoning_goes_to_the_template(desk: Desk, name: str) -> None:
    desk.says("ok")
    said = {"role": "assistant", "content": "four", name: "two and two"}
    desk.ask(messages=[{"role": "user", "content": "2+2"}, said, {"role": "user", "content": "?"}])
    assert "[assistant]fourtwo and two" in desk.prompt


def test_a_conversation_with_calls_and_results(desk: Desk) -> None:
    desk.says(call("add", a=7))
    (made,) = desk.ask(tools=TOOLS)["message"]["tool_calls"]
    desk.says("It is 8.")
    history = [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": made["id"], "content": "8 <|over|>"},
    ]
    assert desk.ask(messages=history, tools=TOOLS)["message"]["content"] == "It is 8."
    assert 'add{"a": 7}' in desk.prompt
    over = CORE.tokenizer.token_id("<|over|>")
    assert desk.submitted.prompt_tokens.count(over) == 3, "a result ends no message"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "none"}, {"reasoning_effort": "none", "off": True}),
        ({"thinking": {"type": "disabled"}}, {"off": True}),
        ({"thinking": {"type": "enabled"}}, {"off": False}),
        (
            {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": True}},
            {"enable_thinking": True, "thinking": False},
        ),
    ],
    ids=str,
)
def test_templates_are_told_of_thinking(more: dict[str, Any], told: dict[str, Any]) -> None:
    variables = dict(told)
    if "off" in variables:
        thinks = not variables.pop("off")
        variables |= {"enable_thinking": thinks, "thinking": thinks}
    seen: list[Any] = []

    class _Preparer:
        def prepare_chat(self, messages: Any, options: Any, chat: Any) -> Any:
            seen.append(chat.variables)

    chat_call(json.dumps(chat(**more)).encode()).prepare(_Preparer())  # type: ignore[arg-type]
    assert seen == [variables]


def test_reasoning_that_goes_on_stands_in_the_prompt(desk: Desk) -> None:
    begun = {"role": "assistant", "reasoning_content": "so far"}
    desk.says("ok")
    desk.ask(messages=[{"role": "user", "content": "go"}, begun], continue_final_message=True)
    assert desk.prompt.endswith("so far")
    body = chat(messages=[begun | {"reasoning_content": ""}], continue_final_message=True)
    error = desk.server.http.post(PATH, json=body).json()["error"]
    assert error["param"] == "messages[0].content"
