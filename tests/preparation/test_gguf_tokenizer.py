"""Tokenizers rebuilt from GGUF metadata, against recorded ids and a naive SentencePiece."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from ignition.preparation.checkpoints.gguf_file import read_gguf
from ignition.preparation.errors import CheckpointError
from ignition.preparation.fields import Fields
from ignition.preparation.tokenizers.gguf_metadata import (
    TokenizerMetadata,
    TokenKind,
    read_tokenizer_metadata,
)
from ignition.preparation.tokenizers.gguf_tokenizer import _add_special_tokens, build_tokenizer_json
from tests.checkpoints import VARIANTS, tokenizer, write_gguf
from tests.smollm2 import require_gguf

RECORD = json.loads((Path(__file__).parents[1] / "data" / "tokenizer_ids.json").read_text())
TEXT = "<|im_start|>user the  answer 123\n\n is é 你 😀<|im_end|>"


def _built(metadata: TokenizerMetadata) -> Tokenizer:
    return Tokenizer.from_buffer(build_tokenizer_json(metadata))


@pytest.fixture(scope="module")
def smollm2() -> TokenizerMetadata:
    return read_tokenizer_metadata(Fields(read_gguf(require_gguf()).metadata, "smollm2"))


@pytest.fixture
def tiny(tmp_path: Path) -> Fields:
    """Metadata of the tiny byte-level tokenizer, as a file that tests may edit."""
    path = write_gguf(tmp_path / "tiny.gguf", VARIANTS["smollm"])
    return Fields(read_gguf(path).metadata, "tiny.gguf")


@pytest.mark.parametrize("pre", RECORD["ids"])
def test_ids_are_those_of_transformers(smollm2: TokenizerMetadata, pre: str) -> None:
    built = _built(replace(smollm2, pre=pre))
    for text, expected in zip(RECORD["texts"], RECORD["ids"][pre], strict=True):
        assert built.encode(text, add_special_tokens=False).ids == expected, text


def test_the_file_names_the_pre_tokenizer(smollm2: TokenizerMetadata) -> None:
    assert smollm2.pre == "smollm"
    assert not smollm2.adds_bos


def test_text_comes_back_from_its_ids(smollm2: TokenizerMetadata) -> None:
    built = _built(smollm2)
    for text in RECORD["texts"]:
        ids = built.encode(text, add_special_tokens=False).ids
        assert built.decode(ids, skip_special_tokens=False) == text
    assert built.decode(built.encode("<|im_start|>hi<|im_end|>").ids) == "hi"


def test_same_metadata_gives_the_same_bytes(smollm2: TokenizerMetadata) -> None:
    assert build_tokenizer_json(smollm2) == build_tokenizer_json(smollm2)


def test_tiny_tokenizer_survives_gguf(tiny: Fields) -> None:
    built = _built(read_tokenizer_metadata(tiny))
    expected = tokenizer()
    assert built.encode(TEXT).tokens == expected.encode(TEXT).tokens
    assert built.get_vocab() == expected.get_vocab()


def test_bos_goes_before_text_where_the_file_says_so(tiny: Fields) -> None:
    tiny.values["tokenizer.ggml.add_bos_token"] = True  # type: ignore[index]
    built = _built(read_tokenizer_metadata(tiny))
    assert built.encode("the").tokens == ["<|im_start|>", "t", "h", "e"]
    assert built.encode("the", add_special_tokens=False).tokens == ["t", "h", "e"]


def test_user_defined_tokens_are_matched_but_not_special(tiny: Fields) -> None:
    metadata = read_tokenizer_metadata(tiny)
    token = metadata.tokens.index("Ġhello")
    kinds = list(metadata.kinds)
    kinds[token] = TokenKind.USER_DEFINED
    built = _built(replace(metadata, kinds=tuple(kinds)))
    ids = built.encode("xĠhellox").ids
    assert token in ids
    # Kept although special tokens are skipped; the decoder reads its text as bytes.
    assert built.decode(ids) == "x hellox"


def test_special_tokens_are_added_in_one_call(tiny: Fields) -> None:
    # Each call costs what all added tokens cost: one a token would be quadratic.
    calls: list[list[AddedToken]] = []

    class Library:
        def add_tokens(self, tokens: list[AddedToken]) -> None:
            calls.append(tokens)

    metadata = read_tokenizer_metadata(tiny)
    kinds = [TokenKind.CONTROL] * (len(metadata.kinds) - 1) + [TokenKind.USER_DEFINED]
    _add_special_tokens(cast("Tokenizer", Library()), replace(metadata, kinds=tuple(kinds)))
    (added,) = calls
    assert [token.content for token in added] == list(metadata.tokens)
    assert [token.special for token in added] == [True] * (len(kinds) - 1) + [False]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model", "bert", "`tokenizer.ggml.model` is 'bert'"),
        ("model", None, "`tokenizer.ggml.model` is missing"),
        ("pre", "tekken", "`tokenizer.ggml.pre` is 'tekken'"),
        ("pre", None, "`tokenizer.ggml.pre` is missing"),
        ("tokens", None, "must be an array of strings"),
        ("tokens", ["a", "a"], "holds a token twice"),
        ("tokens", ["a" * 2000], "more than 1024 characters"),
        ("tokens", [], "outside \\[0, -1\\]"),
        ("token_type", np.ones(3, np.int32), "must be an array of 331 numbers"),
        ("token_type", np.full(331, 9, np.int32), "holds 9, no token type"),
        ("merges", ["u s", "us"], "holds 'us'"),
        ("merges", ["zz zz"], "doesn't join two tokens"),
        ("merges", None, "must be an array of strings"),
        ("eos_token_id", 331, "is 331, which is outside"),
        ("eos_token_id", -1, "is -1, which is outside"),
        ("add_eos_token", True, "isn't supported"),
        ("add_bos_token", 1, "must be true or false"),
    ],
)
def test_what_is_wrong_is_named(tiny: Fields, field: str, value: object, message: str) -> None:
    values = {**tiny.values, f"tokenizer.ggml.{field}": value}
    with pytest.raises(CheckpointError, match=message):
        build_tokenizer_json(read_tokenizer_metadata(Fields(values, "tiny.gguf")))


# ---------------------------------------------------------------- SentencePiece

_LETTERS = "▁abc"


def _sentencepiece(
    pieces: dict[str, float], *, space_prefix: bool = True, **flags: object
) -> TokenizerMetadata:
    """A `llama` tokenizer: unknown, BOS, EOS, 256 bytes, then the pieces."""
    controls = ["<unk>", "<s>", "</s>"]
    tokens = [*controls, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    values: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.scores": np.array([0.0] * 259 + list(pieces.values()), np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": space_prefix,
    }
    return read_tokenizer_metadata(Fields(values | flags, "tiny.gguf"))


def _naive_pieces(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's own rule: join the neighbours with the best union, leftmost first."""
    symbols = list("▁" + text.replace(" ", "▁"))
    while True:
        unions = [(scores.get(a + b), -i) for i, (a, b) in enumerate(pairwise(symbols))]
        known = [union for union in unions if union[0] is not None]
        if not known:
            return symbols
        at = -max(known)[1]
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]


@settings(deadline=None)
@given(
    words=st.lists(st.text(_LETTERS, min_size=2, max_size=4), max_size=12, unique=True),
    text=st.text(" abc", min_size=1, max_size=24),
)
def test_scores_join_pieces_as_sentencepiece_does(words: list[str], text: str) -> None:
    # A piece is useful only if two others make it up; distinct scores, as trained models have.
    scores = {letter: -1e3 - i for i, letter in enumerate(_LETTERS)}
    for rank, word in enumerate(words):
        scores[word] = float(-rank)
    # A piece with one split only: a rank-ordered BPE can't express ties between splits.
    pieces = {p: s for p, s in scores.items() if len(p) == 1 or _splits(p, scores) == 1}
    pieces = {p: s for p, s in pieces.items() if len(p) == 1 or _splits(p, pieces) == 1}
    built = _built(_sentencepiece(pieces))
    expected = _naive_pieces(text, pieces)
    assert built.encode(text, add_special_tokens=False).tokens == expected


def _splits(piece: str, pieces: dict[str, float]) -> int:
    return sum(piece[:i] in pieces and piece[i:] in pieces for i in range(1, len(piece)))


def test_sentencepiece_falls_back_to_bytes_and_comes_back() -> None:
    pieces = {"▁": -9.0, "a": -8.0, "b": -7.0, "▁a": -1.0, "▁ab": -2.0}
    built = _built(_sentencepiece(pieces))
    ids = built.encode("ab é").ids
    tokens = [built.id_to_token(token) for token in ids]
    assert tokens == ["<s>", "▁ab", "▁", "<0xC3>", "<0xA9>"]
    assert built.decode(ids) == "ab é"


def test_space_prefix_is_left_out_where_the_file_says_so() -> None:
    pieces = {"▁": -9.0, "a": -8.0, "▁a": -1.0}
    built = _built(_sentencepiece(pieces, space_prefix=False))
    encoded = built.encode("a a", add_special_tokens=False)
    assert encoded.tokens == ["a", "▁a"]
    assert built.decode(built.encode(" a").ids) == " a"


@pytest.mark.parametrize("scores", [np.ones(3, np.float32), np.full(260, np.nan, np.float32)])
def test_scores_must_be_finite_and_complete(scores: np.ndarray) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.scores"):
        _sentencepiece({"a": 0.0}, **{"tokenizer.ggml.scores": scores})


def test_bos_must_exist_where_text_starts_with_it() -> None:
    with pytest.raises(CheckpointError, match="bos_token_id` is missing"):
        _sentencepiece({"a": 0.0}, **{"tokenizer.ggml.bos_token_id": None})
