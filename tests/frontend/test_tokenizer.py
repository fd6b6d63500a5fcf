from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import CoreError
from helios.frontend.tokenizer import Tokenizer
from tests.frontend.vocabularies import TAG, byte_level, piece_level

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_the_bytes_of_byte_level_tokens_are_the_text(text: str) -> None:
    tokenizer = Tokenizer(byte_level())
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()


@given(TEXT.filter(lambda text: "▁" not in text and TAG not in text and "<|" not in text))
def test_the_bytes_of_pieces_are_the_text_after_one_space(text: str) -> None:
    tokenizer = Tokenizer(piece_level())
    spelled = b"".join(map(tokenizer.token_bytes, tokenizer.encode(text)))
    assert spelled == (" " + text if text else "").encode()


def test_markers_in_text_are_markers() -> None:
    tokenizer = Tokenizer(byte_level())
    ids = tokenizer.encode("a<|im_end|>" + TAG)
    assert ids[1:] == [tokenizer.token_id("<|im_end|>"), tokenizer.token_id(TAG)]
    assert tokenizer.special_ids == {0, 1, 2}


def test_ids_without_a_token_have_no_bytes() -> None:
    assert Tokenizer(byte_level()).token_bytes(1_000_000) == b""


def test_stored_truncation_and_padding_are_not_applied() -> None:
    library = Tokenizer(byte_level()).library
    library.enable_truncation(3)
    library.enable_padding(length=50)
    tokenizer = Tokenizer(library.to_str().encode())
    assert len(tokenizer.encode("abcdefghij")) == 10


def _with_decoder(decoder: object) -> bytes:
    return json.dumps(json.loads(byte_level()) | {"decoder": decoder}).encode()


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "not a readable tokenizer.json"),
        (b"{}", "not a readable tokenizer.json"),
        (b'{"added_tokens": 3}', "not a readable tokenizer.json"),
        (_with_decoder(None), "no decoder is declared"),
        (_with_decoder({"type": "WordPiece", "prefix": "##", "cleanup": True}), "'WordPiece'"),
        (
            _with_decoder({"type": "Strip", "content": "_", "start": 1, "stop": 0}),
            "'Strip' is not supported",
        ),
    ],
)
def test_unusable_tokenizers_are_refused(data: bytes, cause: str) -> None:
    with pytest.raises(CoreError, match=cause):
        Tokenizer(data)
