"""Conversations as templates read them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helios.errors import RequestError
from helios.frontend.conversation import for_template
from helios.frontend.origins import Origin, by, least
from tests.frontend.chat_styles import reference
from tests.frontend.chat_styles.styles import STYLES


def _one(message: dict[str, Any], *, parts: bool = False) -> dict[str, Any]:
    (found,) = for_template([message], wants_parts=parts)
    return found


def test_what_is_none_is_left_out_and_content_is_empty_text() -> None:
    message = {"role": "assistant", "content": None, "name": None, "tool_calls": None}
    assert _one(message) == {"role": "assistant", "content": ""}
    assert message["name"] is None  # the client's stays as it was


def test_parts_are_kept_for_templates_that_read_them() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]
    kept = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]
    assert _one({"role": "user", "content": parts}, parts=True)["content"] == kept
    assert _one({"role": "user", "content": parts[:2]})["content"] == "a\nb"


@pytest.mark.parametrize("given", ['{"a": [1.0]}', {"a": [1.0]}])
def test_arguments_are_mappings(given: Any) -> None:
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": given}}]}
    assert _one(message)["tool_calls"][0]["function"]["arguments"] == {"a": [1.0]}


@pytest.mark.parametrize("given", ["[1]", "{", "x", 7])
def test_arguments_that_are_no_object_are_refused(given: Any) -> None:
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": given}}]}
    with pytest.raises(RequestError) as caught:
        _one(message)
    assert caught.value.where == "messages[0].tool_calls[0].function.arguments"


def test_origins() -> None:
    found = _one({"role": "assistant", "content": "c", "reasoning_content": "r", "name": "n"})
    assert least(found["role"]) is Origin.TEMPLATE
    assert least(found["content"]) is Origin.ANSWER
    assert {least(found["reasoning_content"]), least(found["name"])} == {Origin.CLIENT}
    assert least(_one({"role": "user", "content": "c"})["content"]) is Origin.CLIENT
    assert least(_one({"role": "im_end", "content": "c"})["role"]) is Origin.CLIENT
    parts = _one({"role": "assistant", "content": [{"type": "text", "text": "c"}]}, parts=True)
    assert least(parts["content"][0]["text"]) is Origin.ANSWER
    assert by(Origin.CLIENT, "c") == "c"


def test_a_role_that_templates_do_not_know_makes_no_marker() -> None:
    prompts = reference.maker(STYLES["role_tokens"], "bytes")
    end = prompts.tokenizer.token_id("<|end|>")
    user = prompts.tokenizer.token_id("<|user|>")
    tokens = prompts.of_messages([{"role": "end", "content": "c"}]).tokens
    assert tokens.count(end or -1) == 1  # the message's own end
    assert user in prompts.of_messages([{"role": "user", "content": "c"}]).tokens


@pytest.mark.parametrize(
    ("style", "content", "ending"),
    [
        ("function_tags", "It begins \n", "assistant\nIt begins \n"),  # it keeps white space
        ("turns", "It begins \n", "assistant\nIt begins"),  # it cuts white space off
        ("function_tags", [{"type": "text", "text": "It "}], "assistant\nIt "),
    ],
)
def test_a_message_that_goes_on_ends_the_prompt(style: str, content: Any, ending: str) -> None:
    prompts = reference.maker(STYLES[style], "bytes")
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": content}]
    text = prompts.of_messages(messages, continue_last=True).text or ""
    assert text.endswith(ending)


@pytest.mark.parametrize("content", ["", None, [], [{"type": "image"}]])
def test_what_cannot_go_on_is_refused(content: Any) -> None:
    prompts = reference.maker(STYLES["model_turns"], "bytes")
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": content}]
    with pytest.raises(RequestError, match="no text to continue") as refused:
        prompts.of_messages(messages, continue_last=True)
    assert refused.value.where == "messages[1].content"


@pytest.mark.parametrize(
    ("style", "reasoning", "ending"),
    [
        ("think_json", "So far ", "assistant\n<think>\nSo far "),
        ("argument_tags", "So <think>", "<|assistant|><think>So <think>"),
    ],
)
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("content", ["", None, []])
def test_reasoning_that_goes_on_ends_the_prompt(
    style: str, reasoning: str, ending: str, name: str, content: Any
) -> None:
    prompts = reference.maker(STYLES[style], "bytes")
    begun = {"role": "assistant", "content": content, name: reasoning}
    made = prompts.of_messages([{"role": "user", "content": "q"}, begun], continue_last=True)
    assert (made.text or "").endswith(ending)
    opener = prompts.tokenizer.token_id("<think>")
    assert made.tokens.count(opener or -1) == 1, "the template's, and not the one in the text"


@pytest.mark.parametrize(
    ("style", "more", "field"),
    [
        ("function_tags", {}, "reasoning_content"),  # its template leaves earlier reasoning out
        ("function_tags", {"tool_calls": [{"function": {"name": "f"}}]}, "tool_calls"),
        ("function_tags", {"role": "user"}, "content"),
    ],
)
def test_reasoning_that_cannot_go_on_is_refused(
    style: str, more: dict[str, Any], field: str
) -> None:
    prompts = reference.maker(STYLES[style], "bytes")
    begun = {"role": "assistant", "reasoning_content": "So", **more}
    with pytest.raises(RequestError) as refused:
        prompts.of_messages([{"role": "user", "content": "q"}, begun], continue_last=True)
    assert refused.value.where == f"messages[1].{field}"


@pytest.mark.parametrize(
    "given",
    ['{"a": NaN}', '{"a": [-Infinity]}', '{"a": {"b": 1e999}}', {"a": [{"b": math.nan}]}],
    ids=str,
)
def test_numbers_that_json_does_not_have_are_refused(given: Any) -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    bad = {"function": {"name": "f", "arguments": given}}
    messages = [{"role": "user"}, {"role": "assistant", "tool_calls": [call, bad]}]
    with pytest.raises(RequestError, match=r"is no (JSON|finite) number") as refused:
        for_template(messages, wants_parts=False)
    assert refused.value.where == "messages[1].tool_calls[1].function.arguments"
