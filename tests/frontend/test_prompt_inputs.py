"""What no prompt can be made of is refused by name, before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pytest

from helios.errors import RequestError
from helios.frontend.markers import MarkerGuard
from helios.frontend.prompt_inputs import (
    CHARACTERS_LIMIT,
    DEPTH_LIMIT,
    TOOL_CHARACTERS_LIMIT,
    VALUES_LIMIT,
    InputBounds,
)
from helios.frontend.prompts import PromptMaker, PromptTooLongError
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from tests.frontend.vocabularies import CHAT_TEMPLATE, byte_level

ASK = {"role": "user", "content": "Hi"}


class _Untouched(ChatTemplate):
    """A template that nothing may be rendered with."""

    def written(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> NoReturn:
        raise AssertionError("it was rendered")


def _maker(context_tokens: int) -> PromptMaker:
    tokenizer = Tokenizer(byte_level())
    return PromptMaker(
        tokenizer=tokenizer,
        guard=MarkerGuard(tokenizer),
        template=_Untouched(CHAT_TEMPLATE, {}),
        bos_token=None,
        max_context_tokens=context_tokens,
        input_tokens=tokenizer.id_extent,
    )


def _tool(description: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "description": description}}


@pytest.mark.parametrize("field", ["tools", "documents"])
def test_what_cannot_fit_is_not_rendered(field: str) -> None:
    value = _tool("d" * 10_000_000) if field == "tools" else {"text": "d" * 10_000_000}
    options: dict[str, Any] = {field: [value]}
    with pytest.raises(RequestError) as caught:
        _maker(100_000).of_messages([ASK], **options)
    assert caught.value.where == field
    if field == "documents":
        assert isinstance(caught.value, PromptTooLongError)


def test_tools_are_bounded_whatever_the_context_holds() -> None:
    with pytest.raises(RequestError, match="characters") as caught:
        _maker(1 << 30).of_messages([ASK], tools=[_tool("d" * TOOL_CHARACTERS_LIMIT)])
    assert caught.value.where == "tools"


def test_all_strings_count_together() -> None:
    half = "x" * (CHARACTERS_LIMIT // 2)
    bounds = InputBounds()
    assert bounds.check_all([half], "messages") == len(half)
    bounds.check({"a": half[:-1]}, "chat_template_kwargs")
    with pytest.raises(RequestError, match="too large") as caught:
        bounds.check_all([{}, {"b": ""}, {"c": ""}], "documents")
    assert caught.value.where == "documents[1]"


def test_values_are_counted() -> None:
    with pytest.raises(RequestError, match="too large"):
        InputBounds().check([0] * VALUES_LIMIT, "tools[0]")
    InputBounds().check([0] * (VALUES_LIMIT - 1), "tools[0]")


def test_depth_is_bounded() -> None:
    value: Any = "x"
    for _ in range(DEPTH_LIMIT + 1):
        value = [value]
    InputBounds().check(value, "tools[0]")
    with pytest.raises(RequestError, match="nested too deeply") as caught:
        InputBounds().check({"k": value}, "tools[3]")
    assert caught.value.where == "tools[3]"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RequestError, match="nested too deeply"):
        InputBounds().check(value, "tools[3]")


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("messages[1]", {"messages": [ASK, {"role": "user", "content": "x\ufdd1"}]}),
        ("messages[0]", {"messages": [{**ASK, "\ufdd0": 1}]}),
        ("tools[0]", {"tools": [_tool("\ufdd2")]}),
        ("documents[0]", {"documents": [{"text": ["\ufdd3"]}]}),
        ("chat_template_kwargs", {"variables": {"x": {"y": "\ufdd0"}}}),
    ],
)
def test_characters_that_prompts_are_made_with_are_refused(
    place: str, options: dict[str, Any]
) -> None:
    with pytest.raises(RequestError, match=r"U\+FDD0") as caught:
        _maker(1000).of_messages(options.pop("messages", [ASK]), **options)
    assert caught.value.where == place
