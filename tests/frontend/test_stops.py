"""Stops in a stream: however it is cut, the result is that of a search in the whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.frontend.detokenizer import Detokenizer
from helios.frontend.output import OutputPipeline
from helios.frontend.prepare import PreparedRequest
from helios.frontend.stops import HeldBack, StopConditions, StopMatcher
from helios.frontend.tokenizer import Tokenizer
from helios.runtime.rounds import SamplingParameters
from tests.frontend.vocabularies import EOS_ID, TAG, byte_level

BYTE_LEVEL = Tokenizer(byte_level())
FEW = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def first_match(whole: Sequence[object], stops: Sequence[Sequence[object]]) -> tuple[int, bool]:
    """How much of the whole is shown, and whether a stop is in it, by trying every place."""
    for end in range(1, len(whole) + 1):
        lengths = [len(s) for s in stops if list(whole[max(end - len(s), 0) : end]) == list(s)]
        if lengths:
            return end - max(lengths), True
    return len(whole), False


def byte_tokens(text: str) -> list[int]:
    """A token for each byte."""
    ids = {BYTE_LEVEL.token_bytes(i): i for i in range(3, 259)}
    return [ids[bytes([byte])] for byte in text.encode()]


def matched(conditions: StopConditions, tokens: Sequence[int]) -> tuple[list[str], bool]:
    """What each token releases and what the end does; whether a stop was found."""
    matcher = StopMatcher(conditions, BYTE_LEVEL, eos_ids=(EOS_ID,), continues=True)
    pieces = [matcher.push(token) for token in tokens]
    return [*pieces, matcher.finish()], matcher.stopped


# ---------------------------------------------------------------- streams of symbols


@pytest.mark.clause("STOP-2", "STOP-3")
@given(text=FEW, stops=STOPS, cuts=st.lists(st.integers(0, 24)))
def test_every_cut_of_a_stream_gives_the_result_of_the_whole(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    ends = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    held = HeldBack[str](stops)
    released = "".join("".join(held.push(text[a:b])) for a, b in pairwise(ends))
    shown, found = first_match(text, stops)
    assert text[:shown].startswith(released)
    assert released + "".join(held.finish()) == text[:shown]
    assert held.stopped == found


@given(tokens=st.lists(st.integers(0, 2), max_size=24),
       sequences=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=4))  # fmt: skip
def test_streams_of_tokens_are_searched_alike(
    tokens: list[int], sequences: list[list[int]]
) -> None:
    held = HeldBack[int](sequences)
    released = [symbol for token in tokens for symbol in held.push([token])]
    shown, found = first_match(tokens, sequences)
    assert (released + held.finish(), held.stopped) == (tokens[:shown], found)


@pytest.mark.clause("STOP-3")
@given(text=FEW, stops=STOPS)
def test_no_more_is_held_back_than_may_become_a_stop(text: str, stops: list[str]) -> None:
    held = HeldBack[str](stops)
    released = "".join(symbol for one in text for symbol in held.push(one))
    if not held.stopped:
        kept = text[len(released) :]
        longest = max(
            (n for s in stops for n in range(len(s)) if n == 0 or text.endswith(s[:n])), default=0
        )
        assert len(kept) == longest == held.held


# ---------------------------------------------------------------- tokens and their text


@pytest.mark.clause("STOP-2", "STOP-3")
@given(text=TEXT, data=st.data())
def test_characters_split_over_tokens_are_found(text: str, data: st.DataObject) -> None:
    """The same text as bytes and as merged tokens."""
    begin = data.draw(st.integers(0, max(len(text) - 1, 0)))
    stop = text[begin : data.draw(st.integers(begin + 1, begin + 4))] or "x"
    shown, found = first_match(text, [stop])
    for tokens in (byte_tokens(text), BYTE_LEVEL.encode(text)):
        pieces, stopped = matched(StopConditions((stop,)), tokens)
        assert ("".join(pieces), stopped) == (text[:shown], found)


@given(ids=st.lists(st.integers(3, 264)), stops=st.lists(TEXT.filter(bool), max_size=3))
def test_broken_characters_are_searched_as_they_are_shown(ids: list[int], stops: list[str]) -> None:
    stops = [*stops, "\ufffd\ufffd"]
    detokenizer = Detokenizer(BYTE_LEVEL, continues=True)
    whole = "".join([*map(detokenizer.push, ids), detokenizer.finish()])
    shown, found = first_match(whole, stops)
    pieces, stopped = matched(StopConditions(tuple(stops)), ids)
    assert ("".join(pieces), stopped) == (whole[:shown], found)


@pytest.mark.clause("STOP-2")
def test_a_stop_inside_one_token_removes_what_follows_it_there() -> None:
    (token,) = BYTE_LEVEL.encode("hello")
    assert matched(StopConditions(("ll",)), [token]) == (["he", ""], True)


@pytest.mark.clause("STOP-2")
def test_the_first_that_is_complete_counts_not_the_first_that_begins() -> None:
    pieces, _ = matched(StopConditions(("abcd", "bc")), byte_tokens("xabcd"))
    assert "".join(pieces) == "xa"
    pieces, _ = matched(StopConditions(("c", "abc", "bc")), byte_tokens("xabcd"))
    assert "".join(pieces) == "x"


@pytest.mark.clause("STOP-2")
def test_envelopes_are_searched_like_any_text() -> None:
    tokens = [*BYTE_LEVEL.encode(TAG), *byte_tokens("so far")]
    pieces, stopped = matched(StopConditions((TAG[-3:] + "so",)), tokens)
    assert ("".join(pieces), stopped) == (TAG[:-3], True)


@pytest.mark.clause("STOP-3")
def test_overlapping_beginnings_are_held_back_until_they_are_resolved() -> None:
    pieces, stopped = matched(StopConditions(("aab", "ba")), byte_tokens("aaac"))
    assert (pieces, stopped) == (["", "", "a", "aac", ""], False)


@pytest.mark.clause("STOP-3")
@pytest.mark.parametrize("last", [[], [EOS_ID]])
def test_the_end_of_an_answer_shows_what_was_held_back(last: list[int]) -> None:
    pieces, stopped = matched(StopConditions(("word!",)), [*byte_tokens("a wor"), *last])
    assert ("".join(pieces[:-1]), pieces[-1], stopped) == ("a ", "wor", False)


@pytest.mark.clause("STOP-6")
def test_stop_tokens_are_omitted_and_their_beginnings_wait() -> None:
    a, b, c, d = byte_tokens("abcd")
    conditions = StopConditions(sequences=((b, c, b, d), (d, d)))
    assert matched(conditions, [a, b, c, b, c, b, d, a]) == (
        ["a", "", "", "", "bc", "", "", "", ""],
        True,
    )
    assert matched(conditions, [a, b, c]) == (["a", "", "", "bc"], False)


@pytest.mark.clause("STOP-6")
def test_the_end_of_sequence_may_end_a_stop_sequence() -> None:
    a, b = byte_tokens("ab")
    assert matched(StopConditions(sequences=((b, EOS_ID),)), [a, b, EOS_ID]) == (
        ["a", "", "", ""],
        True,
    )


def test_token_stops_need_no_tokenizer() -> None:
    matcher = StopMatcher(StopConditions(sequences=((5, 6),)), None, eos_ids=(), continues=True)
    assert [matcher.push(token) for token in (5, 5, 6)] == [""] * 3
    assert matcher.finish() == ""
    assert matcher.stopped


# ---------------------------------------------------------------- the output pipeline


@pytest.mark.clause("STOP-2", "STOP-5")
@given(groups=st.lists(st.lists(st.integers(3, 264), max_size=4), max_size=6), stops=STOPS)
def test_the_pipeline_shows_the_same_however_rounds_group_tokens(
    groups: list[list[int]], stops: list[str]
) -> None:
    prepared = PreparedRequest(
        [5], 99, SamplingParameters(), (EOS_ID,), True, stops=StopConditions(tuple(stops))
    )
    every = [token for group in groups for token in group]
    together = OutputPipeline(BYTE_LEVEL, prepared)
    whole = together.push(every, [0.0] * len(every), last=True)
    apart = OutputPipeline(BYTE_LEVEL, prepared)
    deltas = [apart.push(group, [0.0] * len(group), last=False) for group in groups]
    deltas.append(apart.push([], [], last=True))
    assert "".join(delta.text for delta in deltas) == whole.text
    assert sum((delta.tokens for delta in deltas), ()) == whole.tokens
    assert apart.output_tokens == len(every)
