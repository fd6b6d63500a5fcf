"""A tokenizer's bytes read from its file alone are those that the library's spellings give."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

from helios.errors import CoreError
from helios.frontend.token_bytes import read_token_bytes
from helios.frontend.tokenizer import Tokenizer
from tests.frontend.vocabularies import byte_level, piece_level


def unigram() -> bytes:
    pieces = [("<unk>", 0.0), ("▁", -1.0), ("▁é", -2.0), ("<0x41>", -3.0), ("b", -4.0)]
    library = Library(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    library.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback()])
    library.add_special_tokens(["<s>"])
    return library.to_str().encode()


def with_decoder(decoder: object) -> bytes:
    return json.dumps(json.loads(byte_level()) | {"decoder": decoder}).encode()


@pytest.mark.parametrize("data", [byte_level(), piece_level(), unigram()])
def test_both_ways_give_the_same_bytes(data: bytes) -> None:
    library, file = Tokenizer(data), read_token_bytes(data)
    ids = range(library.id_extent + 2)
    assert [file.token_bytes(id) for id in ids] == [library.token_bytes(id) for id in ids]
    assert file.special_ids == library.special_ids
    assert file.strips_leading_space == library.strips_leading_space
    assert any(file.token_bytes(id) for id in ids)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "not a readable tokenizer.json"),
        (b"{}", "not a readable tokenizer.json"),
        (b'{"model": {"vocab": {"a": "b"}}}', "not a readable tokenizer.json"),
        (with_decoder({"type": "Replace", "pattern": {"String": 3}}), "not a readable"),
        (b'{"decoder": ' + b'{"decoders": [' * 5000, "not a readable tokenizer.json"),
        (with_decoder(None), "no decoder"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, cause: str) -> None:
    with pytest.raises(CoreError, match=cause):
        read_token_bytes(data)
