"""The form of answers with calls and reasoning: whole ones, streams, and what comes with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from helios.worker.messages import Finish
from tests.frontend.response.test_json_calls import KIMI
from tests.server.desk import CORE, THINKS, TOOLS, Desk, call, desk_of
from tests.server.syntaxes import core, functions


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    yield from desk_of(CORE)


@pytest.mark.clause("FRONT-13")
def test_a_call_begins_with_its_id_and_name_and_goes_on_with_arguments(desk: Desk) -> None:
    desk.says(f"Let me see.\n\n{call('add', a=7)}\n{call('say', text='a b')}")
    deltas = desk.deltas(tools=TOOLS)
    assert deltas[0] == {"role": "assistant", "content": ""}
    parts = [part for delta in deltas for part in delta.get("tool_calls", [])]
    for index, name in enumerate(["add", "say"]):
        first, *others = [part for part in parts if part["index"] == index]
        assert first["type"] == "function"
        assert first["id"].startswith("call_")
        assert first["function"]["name"] == name
        assert others
        for part in others:
            assert part == {
                "index": index,
                "function": {"arguments": part["function"]["arguments"]},
            }
    ids = [part["id"] for part in parts if "id" in part]
    assert len(set(ids)) == 2
    assert "".join(delta.get("content", "") for delta in deltas) == "Let me see."
    arguments = [part["function"]["arguments"] for part in parts if part["index"] == 1]
    assert json.loads("".join(arguments)) == {"text": "a b"}
    assert sum("a" in text or "b" in text for text in arguments) > 1, "texts stream as they come"


def test_an_object_may_have_closing_tags_and_numbers_of_any_size_in_it(desk: Desk) -> None:
    page = '{"page": "<parameter=a>\\n</parameter>\\n</function>", "x": [9e999]}'
    desk.says(call("keep", page=page, count=2))
    tools = functions({"keep": {"page": {"type": "object"}, "count": {"type": "integer"}}})
    deltas = desk.deltas(tools=tools)
    parts = [part for delta in deltas for part in delta.get("tool_calls", [])]
    arguments = "".join(part["function"]["arguments"] for part in parts)
    assert arguments == f'{{"page":{page},"count":2}}'


@pytest.mark.clause("FRONT-13")
def test_every_choice_has_one_finish_chunk(desk: Desk) -> None:
    desk.says(call("add", a=1), "no call", f"so</think>{call('add', a=2)}{call('add', a=3)}")
    chunks = desk.chunks(tools=TOOLS, n=3, stream_options={"include_usage": True}, **THINKS)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    ends = [(c["index"], c["finish_reason"]) for c in choices if c["finish_reason"] is not None]
    assert sorted(ends) == [(0, "tool_calls"), (1, "stop"), (2, "tool_calls")]
    for index in range(3):
        its = [c for c in choices if c["index"] == index]
        assert its[0]["delta"] == {"role": "assistant", "content": ""}
        assert its[-1]["finish_reason"] is not None
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    reasoning = [c["delta"].get("reasoning_content", "") for c in choices if c["index"] == 2]
    assert "".join(reasoning) == "so"


@pytest.mark.clause("FRONT-13")
def test_several_calls_in_one_event(desk: Desk) -> None:
    desk.says(f"so</think>\n\n{call('add', a=1)}\n{call('add', a=2)}", at_once=500)
    (_, delta, *_) = desk.deltas(tools=TOOLS, **THINKS)
    assert delta["reasoning_content"] == "so"
    assert [part["function"]["arguments"] for part in delta["tool_calls"]] == [
        '{"a":1}',
        '{"a":2}',
    ]
    assert "content" not in delta


def test_content_is_null_only_beside_calls(desk: Desk) -> None:
    for text, content in [("", ""), (call("add", a=1), None), (f"x{call('add', a=1)}", "x")]:
        desk.says(text)
        assert desk.ask(tools=TOOLS)["message"]["content"] == content
    desk.says("still thinking", finish=Finish.LIMIT)
    choice = desk.ask(**THINKS)
    assert choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"] == "still thinking"
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]


@pytest.mark.clause("OBS-1")
def test_observed_tokens_have_chunks_of_their_own(desk: Desk) -> None:
    text = f"so</think>\n\n{call('add', a=1)}"
    desk.says(text)
    ids = [*CORE.tokens(text), CORE.eos]
    chunks = desk.chunks(tools=TOOLS, return_token_ids=True, **THINKS)
    choices = [chunk["choices"][0] for chunk in chunks]
    observed = [choice for choice in choices if "token_ids" in choice]
    assert [choice["token_ids"] for choice in observed] == [[token] for token in ids]
    assert all(choice["delta"] == {} for choice in observed)
    assert all(
        choice["delta"] or choice["finish_reason"]
        for choice in choices
        if "token_ids" not in choice
    )
    whole = desk.ask(tools=TOOLS, return_token_ids=True, **THINKS)
    assert whole["token_ids"] == ids
    assert whole["message"]["reasoning_content"] == "so"


def test_log_probabilities_are_of_every_token(desk: Desk) -> None:
    text = f"so</think>\n\nyes\n{call('add', a=1)}"
    desk.says(text)
    asked = {"tools": TOOLS, "logprobs": True, **THINKS}
    count = len(CORE.tokens(text)) + 1
    assert len(desk.ask(**asked)["logprobs"]["content"]) == count
    choices = [chunk["choices"][0] for chunk in desk.chunks(**asked)]
    entries = [entry for c in choices for entry in (c["logprobs"] or {}).get("content", [])]
    assert len(entries) == count
    assert "".join(c["delta"].get("content") or "" for c in choices) == "yes"


@pytest.mark.parametrize(
    "text", ["c\u00e7\u00e9", "\U0001f680", "B \u82b1cd"], ids=["K05", "K11", "K02"]
)
def test_characters_come_whole(desk: Desk, text: str) -> None:
    """Each token is one byte, and no chunk has half a character."""
    desk.says(f"{text}</think>\n\n{text}\n{call('say', text=text)}")
    deltas = desk.deltas(tools=TOOLS, **THINKS)
    for kind in ("reasoning_content", "content"):
        assert "".join(delta.get(kind) or "" for delta in deltas) == text
    parts = [part["function"]["arguments"] for d in deltas for part in d.get("tool_calls", [])]
    assert json.loads("".join(parts)) == {"text": text}
    assert not any("\ufffd" in json.dumps(delta, ensure_ascii=False) for delta in deltas)


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["K08", "K08 with tools"])
def test_an_incomplete_character_is_shown_as_such(desk: Desk, tools: Any) -> None:
    tokenizer = CORE.tokenizer
    half = [[tokenizer.token_id(byte) or 0] for byte in ("\u00f0", "\u0141")]
    desk.playing.play([half])
    shown = desk.ask(tools=tools)["message"]["content"]
    assert shown == "\ufffd"
    deltas = desk.deltas(tools=tools)
    assert "".join(delta.get("content", "") for delta in deltas) == shown


def test_ids_of_the_models_own_are_kept() -> None:
    """G23: in such syntaxes the id is what later prompts name the tool by."""
    section = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
        '<|tool_call_argument_begin|>{"a": "5"}<|tool_call_end|><|tool_calls_section_end|>'
    )
    for kimi in desk_of(core(KIMI)):
        kimi.says(section)
        (made,) = kimi.ask(tools=TOOLS)["message"]["tool_calls"]
        assert (made["id"], made["function"]["name"]) == ("functions.add:0", "add")
        parts = [p for delta in kimi.deltas(tools=TOOLS) for p in delta.get("tool_calls", [])]
        assert parts[0]["id"] == made["id"]
        streamed = "".join(part["function"]["arguments"] for part in parts)
        assert streamed == made["function"]["arguments"] == '{"a":"5"}', "H06"
