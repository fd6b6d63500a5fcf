"""Stops in responses whose markers are signs."""

from __future__ import annotations

import pytest

from helios.frontend.response.marked_stops import MarkedStops
from helios.frontend.response.marked_text import MarkedReader, marker_signs
from helios.frontend.stops import StopConditions, StopMatcher
from tests.frontend.response.tokens import tokenizer_with

_TOKENIZER = tokenizer_with(["<|x|>"], ["<think>", "</think>"])
_EOS = _TOKENIZER.encode("<|x|>")[0]


def _both(text: str, *strings: str) -> tuple[str, str]:
    """A text up to a stop: as it is marked, and as the worker sees it."""
    conditions = StopConditions(strings=strings)
    signs = marker_signs(_TOKENIZER, ["<think>", "</think>"])
    reader = MarkedReader(_TOKENIZER, signs, continues=False)
    marked = MarkedStops(conditions, reader, signs.plain, eos_ids=[_EOS])
    matcher = StopMatcher(conditions, _TOKENIZER, eos_ids=[_EOS], continues=False)
    first = second = ""
    for token in _TOKENIZER.encode(text):
        first += marked.push(token)
        second += matcher.push(token)
        assert marked.stopped == matcher.stopped
    first, second = first + marked.finish(), second + matcher.finish()
    assert signs.plain(first) == second
    return first.replace(signs.sign("<think>"), "{").replace(signs.sign("</think>"), "}"), second


@pytest.mark.parametrize(
    ("text", "strings", "marked"),
    [
        ("a<think>b</think>c", (), "a{b}c"),
        ("a</think>b", ("STOPWORD",), "a}b"),
        ("a</think>STOPb", ("STOP",), "a}"),
        ("a</think>b", ("k>b",), "a</thin"),
        ("a</think>c", ("k>b",), "a}c"),
        ("a</think>c", ("hin",), "a</t"),
        ("gold, iron, zinc", ("iron",), "gold, "),
        ("ok\n<|fin|>", ("<|fin|>",), "ok\n"),
        ("a</think></think>b", ("></",), "a</think"),
        ("a</think>", ("></",), "a}"),
        ("a<|x|>b", ("ab",), ""),
    ],
)
def test_stops_see_what_a_reader_sees(text: str, strings: tuple[str, ...], marked: str) -> None:
    assert _both(text, *strings)[0] == marked
