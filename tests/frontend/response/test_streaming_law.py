"""The law of streaming, for all syntaxes together: however a response is cut, it reads the same.

Responses are made of each syntax's own fragments, well formed or not, so that every state meets
every marker.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontend.response.reading import QUOTE, Syntax
from tests.frontend.response.syntaxes import EVERY, TOOLS

TEXTS = [
    "a",
    " ",
    "\n",
    "\n\n",
    "caf\u00e9 ",
    "<",
    ">",
    '"',
    "'",
    "\\",
    '\\"',
    "{",
    "}",
    "1",
    "null",
    "\U0001f680",
]


@st.composite
def _responses(draw: st.DrawFn, by: Syntax, fragments: tuple[str, ...]) -> list[str]:
    """A response in pieces."""
    spelled = [fragment[:1] + QUOTE + fragment[1:] for fragment in by.tokens]
    parts = draw(st.lists(st.sampled_from([*fragments, *TEXTS, *spelled]), max_size=24))
    text = "".join(by.marked(part) for part in parts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize(("by", "fragments"), EVERY, ids=[by.name for by, _ in EVERY])
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_every_cut_reads_the_same(
    by: Syntax, fragments: tuple[str, ...], data: st.DataObject
) -> None:
    pieces = data.draw(_responses(by, fragments))
    thinking = data.draw(st.booleans())
    tools = data.draw(st.sampled_from([None, TOOLS]))
    whole = by.read("".join(pieces), tools, thinking=thinking)
    assert by.read(pieces, tools, thinking=thinking) == whole
    assert by.read(list("".join(pieces)), tools, thinking=thinking) == whole
    for call in whole.calls:
        assert isinstance(json.loads(call.arguments), dict)
    everything = whole.reasoning + whole.content + "".join(call.arguments for call in whole.calls)
    assert not any(0xD800 <= ord(character) < 0xE000 for character in everything)
