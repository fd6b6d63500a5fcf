"""Every syntax of calls and reasoning, from a whole server with random weights to OpenAI's client.

Nothing but grammars makes such a model write calls or JSON, and nothing but parsers tells them from
reasoning and text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.engine.schemas import SCHEMAS, fits
from tests.server.real_syntaxes import FAMILIES, Served, served_family

LAMP: Final = {
    "type": "object",
    "properties": {"lamp": {"enum": ["red", "green"]}, "on": {"type": "boolean"}},
    "required": ["lamp", "on"],
    "additionalProperties": False,
}
DIGIT: Final = {
    "type": "object",
    "properties": {"digit": {"enum": [1, 2, 3]}},
    "required": ["digit"],
    "additionalProperties": False,
}
OF_TOOLS: Final = {"switch": LAMP, "count": DIGIT}
TOOLS: Final[list[Any]] = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in OF_TOOLS.items()
]
FORM: Final[Any] = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": SCHEMAS[0], "strict": True},
}


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family.tools)
def served(
    request: pytest.FixtureRequest, publisher_key: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    with served_family(request.param, tmp_path_factory.mktemp("syntax"), publisher_key) as running:
        yield running


@dataclass
class Answer:
    """An answer's parts."""

    content: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list)  # names and arguments
    finish: str | None = None


def ask(served: Served, seed: int, *, thinks: bool, **more: Any) -> Answer:
    """An answer, which is the same whole and streamed."""
    extra = {"chat_template_kwargs": {"thinks": thinks}, **more.pop("extra_body", {})}
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "the lamp"}],
        "temperature": 1.0,
        "seed": seed,
        "max_tokens": 300,
        "extra_body": extra,
        **more,
    }
    choice = served.sdk.chat.completions.create(**asked).choices[0]
    message = choice.message
    whole = Answer(
        message.content or "",
        getattr(message, "reasoning_content", None) or "",
        [[call.function.name, call.function.arguments] for call in message.tool_calls or []],
        choice.finish_reason,
    )
    streamed = Answer()
    for chunk in served.sdk.chat.completions.create(**asked, stream=True):
        (part,) = chunk.choices
        streamed.content += part.delta.content or ""
        streamed.reasoning += getattr(part.delta, "reasoning_content", None) or ""
        streamed.finish = part.finish_reason or streamed.finish
        for call in part.delta.tool_calls or []:
            if call.function.name:
                assert call.index == len(streamed.calls)
                streamed.calls.append([call.function.name, ""])
            streamed.calls[call.index][1] += call.function.arguments or ""
    assert streamed == whole
    return whole


def check(calls: list[list[str]]) -> None:
    for name, arguments in calls:
        assert fits(json.loads(arguments), OF_TOOLS[name]), arguments


def test_the_core_declares_its_syntax(served: Served) -> None:
    able = served.server.http.get("/v1/models").json()["data"][0]["capabilities"]
    assert (able["tools"], able["reasoning"], able["structured_output"]) == (True, True, True)


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_required_call_is_made_and_valid(served: Served, seed: int, thinks: bool) -> None:
    bias = served.bias(ends=9, opens=9)
    answer = ask(
        served, seed, thinks=thinks, tools=TOOLS, tool_choice="required",
        parallel_tool_calls=False, logit_bias=bias,
    )  # fmt: skip
    assert len(answer.calls) == 1
    check(answer.calls)
    assert answer.finish == "tool_calls"


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("name", OF_TOOLS)
def test_a_named_call_is_made_once(served: Served, name: str, thinks: bool) -> None:
    bias = served.bias(ends=9, opens=9)
    named = {"type": "function", "function": {"name": name}}
    answer = ask(served, 3, thinks=thinks, tools=TOOLS, tool_choice=named, logit_bias=bias)
    ((called, _),) = answer.calls
    assert called == name
    check(answer.calls)
    assert answer.finish == "stop"


def test_calls_that_the_model_chooses_are_valid(served: Served) -> None:
    made = 0
    for seed in range(4):
        answer = ask(
            served, seed, thinks=False, tools=TOOLS, max_tokens=80,
            logit_bias=served.bias(opens=12),
        )  # fmt: skip
        whole = answer.calls if answer.finish == "tool_calls" else answer.calls[:-1]
        check(whole)
        made += len(answer.calls)
    assert made or not served.family.opens


def test_only_allowed_tools_are_called(served: Served) -> None:
    inner = {"mode": "required", "tools": [{"type": "function", "function": {"name": "count"}}]}
    allowed = {"type": "allowed_tools", "allowed_tools": inner}
    for seed in range(2):
        answer = ask(
            served, seed, thinks=False, tools=TOOLS, tool_choice=allowed,
            parallel_tool_calls=False, logit_bias=served.bias(ends=9, opens=9),
        )  # fmt: skip
        ((name, _),) = answer.calls
        assert name == "count"
        check(answer.calls)
        assert answer.finish == "tool_calls"


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_an_answer_has_its_form(served: Served, seed: int, thinks: bool) -> None:
    answer = ask(
        served, seed, thinks=thinks, response_format=FORM, logit_bias=served.bias(ends=-50),
        extra_body={"thinking_token_budget": 7},
    )  # fmt: skip
    assert fits(json.loads(answer.content), SCHEMAS[0])
    assert (answer.calls, answer.finish) == ([], "stop")
    assert answer.reasoning or not thinks
    unbounded = ask(
        served, seed, thinks=thinks, response_format=FORM, logit_bias=served.bias(ends=9)
    )
    if unbounded.finish == "stop":
        assert fits(json.loads(unbounded.content), SCHEMAS[0])
    else:  # messages of reasoning may be many
        assert (unbounded.finish, unbounded.content) == ("length", "")


@pytest.mark.clause("FRONT-12")
@pytest.mark.parametrize("seed", range(3))
def test_an_answer_of_a_form_or_calls(served: Served, seed: int) -> None:
    answer = ask(
        served, seed, thinks=False, response_format=FORM, tools=TOOLS,
        parallel_tool_calls=False, logit_bias=served.bias(ends=9),
    )  # fmt: skip
    if answer.calls:
        check(answer.calls)
        assert (answer.content, answer.finish) == ("", "tool_calls")
    else:
        assert fits(json.loads(answer.content), SCHEMAS[0])
        assert answer.finish == "stop"


def _tagged(**more: Any) -> dict[str, Any]:
    structure = {"begin": "<lamp>", "schema": LAMP, "end": "</lamp>"}
    tag = {
        "begin": structure["begin"],
        "content": {"type": "json_schema", "json_schema": LAMP},
        "end": structure["end"],
    }
    form = {"type": "triggered_tags", "triggers": ["<lamp"], "tags": [tag], **more}
    return {"type": "structural_tag", "format": form}


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("thinks", [False, True])
def test_a_structural_tag_begins_where_the_answer_does(served: Served, thinks: bool) -> None:
    form = _tagged(at_least_one=True, stop_after_first=True)
    answer = ask(
        served, 1, thinks=thinks, logit_bias=served.bias(ends=-50),
        extra_body={"response_format": form, "thinking_token_budget": 7},
    )  # fmt: skip
    assert answer.content.startswith("<lamp>")
    assert answer.content.endswith("</lamp>")
    assert fits(json.loads(answer.content[len("<lamp>") : -len("</lamp>")]), LAMP)
    assert (answer.calls, answer.finish) == ([], "stop")
    assert answer.reasoning or not thinks
