"""Tokens as marked text: a marker that is a token can't be spelled."""

from __future__ import annotations

import pytest

from helios.frontend.response.marked_text import (
    MarkedReader,
    MarkerSigns,
    is_signed,
    marker_signs,
)
from helios.frontend.tokenizer import Tokenizer
from tests.frontend.response.tokens import tokenizer_with

_BAR = "\uff5cDSML\uff5c"


def _tokenizer() -> Tokenizer:
    return tokenizer_with(["<|eot|>", "<|channel|>"], ["<think>", "</think>", _BAR])


def _spelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text's bytes as tokens, whatever it spells."""
    return [tokenizer.encode(character)[0] for character in text]


def _read(tokenizer: Tokenizer, signs: MarkerSigns, tokens: list[int]) -> str:
    reader = MarkedReader(tokenizer, signs, continues=True)
    return "".join(map(reader.push, tokens)) + reader.finish()


@pytest.mark.clause("FRONT-5")
def test_token_and_spelling_differ() -> None:
    tokenizer = _tokenizer()
    signs = marker_signs(tokenizer, ["<think>", "</think>"])
    think = signs.sign("<think>")
    assert is_signed(think)
    assert len(think) == 1
    assert _read(tokenizer, signs, tokenizer.encode("a<think>b")) == f"a{think}b"
    assert _read(tokenizer, signs, _spelled(tokenizer, "<think>")) == "<think>"
    assert signs.plain(f"a{think}b") == "a<think>b"


def test_marker_that_holds_a_token() -> None:
    tokenizer = _tokenizer()
    marker = f"<{_BAR}calls>"
    signs = marker_signs(tokenizer, [marker])
    assert is_signed(signs.sign(marker))
    assert _read(tokenizer, signs, tokenizer.encode(marker)) == signs.sign(marker)
    assert signs.plain(signs.sign(marker)) == marker


def test_special_markers_are_signs_but_never_shown() -> None:
    tokenizer = _tokenizer()
    signs = marker_signs(tokenizer, ["<|channel|>"])
    text = _read(tokenizer, signs, tokenizer.encode("a<|channel|>b<|eot|>c"))
    assert text == f"a{signs.sign('<|channel|>')}bc"
    assert signs.plain(text) == "abc"


@pytest.mark.parametrize("marker", ["<tool_call>", "x", ""])
def test_text_has_no_sign(marker: str) -> None:
    signs = marker_signs(_tokenizer(), [marker])
    assert signs.sign(marker) == marker


def test_reasoning_delimiters_count_as_any_single_token() -> None:
    tokenizer = _tokenizer()
    assert is_signed(marker_signs(tokenizer, [], strictly=["x"]).sign("x"))
    assert not is_signed(marker_signs(tokenizer, [], strictly=["xy"]).sign("xy"))


def test_half_a_character_before_a_marker_is_shown_as_replaced() -> None:
    tokenizer = _tokenizer()
    signs = marker_signs(tokenizer, ["<think>"])
    first = tokenizer.encode("\U0001f680")[:2]
    text = _read(tokenizer, signs, [*first, *tokenizer.encode("<think>")])
    assert text == "\ufffd" + signs.sign("<think>")
