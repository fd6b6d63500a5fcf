"""Prompts of every style as transformers makes them, live: text and ids of generated
conversations, and the recorded ones."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from helios.frontend.prompts import PromptMaker
from tests.frontend.chat_styles import reference
from tests.frontend.chat_styles.conversations import by_hand, generated
from tests.frontend.chat_styles.styles import KINDS, STYLES
from tests.parity.chat_prompts import Reference

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\ufdd0\ufdd1\ufdd2\ufdd3"),
    max_size=16,
)
every_style = pytest.mark.parametrize("style", list(STYLES))


@functools.cache
def _both(style: str, kind: str) -> tuple[PromptMaker, Reference]:
    return reference.maker(STYLES[style], kind), Reference(STYLES[style], kind)


@every_style
def test_conversations_made_by_hand(style: str) -> None:
    for _, conversation in by_hand(STYLES[style]):
        for kind in KINDS:
            prompts, transformers = _both(style, kind)
            prompt = reference.prompt(prompts, conversation)
            assert prompt.text == transformers.text(conversation)
            assert prompt.tokens == transformers.ids(conversation)


@every_style
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_generated_conversations(style: str, data: st.DataObject) -> None:
    conversation = data.draw(generated(STYLES[style], TEXT))
    markers = STYLES[style].markers
    for kind in KINDS:
        prompts, transformers = _both(style, kind)
        prompt = reference.prompt(prompts, conversation)
        text = transformers.text(conversation)
        assert prompt.text == text == reference.rendered(STYLES[style], conversation)
        if not any(marker in repr(conversation) for marker in markers):
            assert prompt.tokens == transformers.ids(conversation)


@every_style
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_text_is_equal_where_markers_are_spelled(style: str, data: st.DataObject) -> None:
    pieces = st.sampled_from([*STYLES[style].markers, "<", "|", "x", " ", "\n"])
    said = st.lists(pieces, max_size=5).map("".join)
    conversation = data.draw(generated(STYLES[style], said))
    prompts, transformers = _both(style, "bytes")
    assert reference.prompt(prompts, conversation).text == transformers.text(conversation)
