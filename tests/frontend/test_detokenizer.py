from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.frontend.detokenizer import Detokenizer
from helios.frontend.tokenizer import Tokenizer
from tests.frontend.vocabularies import SPECIAL, TAG, byte_level, piece_level

BYTE_LEVEL = Tokenizer(byte_level())
PIECES = Tokenizer(piece_level())
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def _ids(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, tokenizer.library.get_vocab_size() + 3))


def _deltas(tokenizer: Tokenizer, ids: list[int], *, continues: bool = False) -> list[str]:
    detokenizer = Detokenizer(tokenizer, continues=continues)
    return [*map(detokenizer.push, ids), detokenizer.finish()]


@given(_ids(BYTE_LEVEL))
def test_byte_level_deltas_make_the_libraries_one_shot_text(ids: list[int]) -> None:
    expected = BYTE_LEVEL.library.decode(ids, skip_special_tokens=True)
    assert "".join(_deltas(BYTE_LEVEL, ids)) == expected


@given(TEXT.filter(lambda text: "▁" not in text))
def test_piece_level_deltas_make_the_libraries_one_shot_text(text: str) -> None:
    ids = PIECES.encode(text)
    expected = PIECES.library.decode(ids, skip_special_tokens=True)
    assert "".join(_deltas(PIECES, ids)) == expected


@given(_ids(PIECES))
def test_broken_bytes_of_pieces_decode_as_one_byte_string(ids: list[int]) -> None:
    data = b"".join(PIECES.token_bytes(i) for i in ids if i not in PIECES.special_ids)
    assert "".join(_deltas(PIECES, ids, continues=True)) == data.decode(errors="replace")


@given(TEXT)
def test_valid_text_never_shows_a_replacement_character_on_the_way(text: str) -> None:
    ids = [token for byte in text.encode() for token in _byte_token(byte)]
    shown = ""
    for delta in _deltas(BYTE_LEVEL, ids):
        shown += delta
        assert text.startswith(shown)
    assert shown == text


def _byte_token(byte: int) -> list[int]:
    return [i for i in range(3, 259) if BYTE_LEVEL.token_bytes(i) == bytes([byte])]


def test_a_character_comes_out_with_its_last_byte() -> None:
    ids = [i for byte in "🦜".encode() for i in _byte_token(byte)]
    assert _deltas(BYTE_LEVEL, ids) == ["", "", "", "🦜", ""]


def test_an_unfinished_character_is_shown_at_the_end_only() -> None:
    ids = [i for byte in "🦜".encode()[:3] for i in _byte_token(byte)]
    assert _deltas(BYTE_LEVEL, ids) == ["", "", "", "\ufffd"]


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, PIECES], ids=["byte-level", "pieces"])
def test_special_tokens_have_no_text_and_tags_do(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.token_id(content) for content in (*SPECIAL, TAG)]
    assert "".join(_deltas(tokenizer, [i for i in ids if i is not None])) == TAG


def test_the_first_space_is_dropped_unless_the_text_continues() -> None:
    ids = PIECES.encode("hello world")
    assert "".join(_deltas(PIECES, ids)) == "hello world"
    assert "".join(_deltas(PIECES, ids, continues=True)) == " hello world"
