from __future__ import annotations

import json
import threading

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


KINDS = {"byte-level": byte_level, "pieces": piece_level}


@pytest.mark.parametrize("kind", list(KINDS))
@given(text=st.one_of(TEXT, st.lists(st.sampled_from(["hello", " w", TAG, "é"])).map("".join)))
def test_no_text_has_fewer_tokens_than_its_size_says(kind: str, text: str) -> None:
    tokenizer = Tokenizer(KINDS[kind]())
    ids = tokenizer.encode(text)
    assert ids == tokenizer.library.encode(text, add_special_tokens=False).ids
    assert tokenizer.least_tokens(text.encode()) <= len(ids)


def test_the_bound_is_the_longest_token() -> None:
    assert Tokenizer(byte_level()).least_tokens(b"." * (len("<|endoftext|>") * 7 + 1)) == 8


def test_bytes_that_the_vocabulary_lacks_are_not_counted() -> None:
    parts = json.loads(byte_level())
    vocabulary = parts["model"]["vocab"]
    del vocabulary["Ą"]  # byte 4
    tokenizer = Tokenizer(json.dumps(parts).encode())
    text = "\x04" * 4000 + "hello"
    assert len(tokenizer.encode(text)) == tokenizer.least_tokens(text.encode()) == 1


def _changed(**parts: object) -> Tokenizer:
    return Tokenizer(json.dumps(json.loads(byte_level()) | parts).encode())


def _with_added(**properties: bool) -> Tokenizer:
    added = json.loads(byte_level())["added_tokens"]
    return _changed(added_tokens=[token | properties for token in added])


@pytest.mark.parametrize(
    "tokenizer",
    [
        _changed(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
        _changed(
            normalizer={"type": "Replace", "pattern": {"Regex": " +"}, "content": " "},
        ),
        _changed(pre_tokenizer={"type": "WhitespaceSplit"}),
        _with_added(rstrip=True),
    ],
)
def test_tokenizers_that_drop_text_have_no_bound(tokenizer: Tokenizer) -> None:
    assert tokenizer.least_tokens(b" " * 100_000) == 0


def test_a_long_text_lets_other_threads_run() -> None:
    """The library's `encode` would keep the interpreter to itself until the text is done."""
    tokenizer = Tokenizer(byte_level())
    encoded = threading.Event()
    turns = 0

    def encode() -> None:
        tokenizer.encode("hello world " * 100_000)
        encoded.set()

    thread = threading.Thread(target=encode)
    thread.start()
    while not encoded.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 3
