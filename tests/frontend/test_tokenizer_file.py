"""Reading a tokenizer.json, beside the library's own way: the same tokenizer, whatever the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from helios.frontend.tokenizer_file import _read_byte_pairs, read_tokenizer

TEXTS = ("hello low lower", "<s>lowest</s> <tag>low", "unknown æ\x00 ▁", "", "lo" * 50)
LETTERS = [*"abcdefghijklmnopqrstuvwxyzĠ<>/", "</w>"]


def byte_pairs(**options: Any) -> tokenizers.Tokenizer:
    """A small one of the usual kind, with added tokens of several kinds in its vocabulary."""
    vocabulary = {letter: number for number, letter in enumerate(LETTERS)}
    merges = []
    for left, right in (("l", "o"), ("lo", "w"), ("Ġ", "low"), ("e", "r"), ("low", "er")):
        merges.append((left, right))
        vocabulary[left + right] = len(vocabulary)
    for token in ("<unk>", "<s>", "</s>", "<tag>"):
        vocabulary[token] = len(vocabulary)
    library = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, **options))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<s>", AddedToken("</s>", lstrip=True)])
    library.add_tokens([AddedToken("<tag>", normalized=True, single_word=True)])
    return library


def lowercase() -> tokenizers.Tokenizer:
    library = byte_pairs()
    library.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    library.enable_truncation(7)
    return library


def outside() -> tokenizers.Tokenizer:
    library = byte_pairs()
    library.add_special_tokens(["<outside>"])
    return library


def changed(change: Callable[[Any], None]) -> bytes:
    """The usual file, changed."""
    file = json.loads(byte_pairs().to_str())
    change(file)
    return json.dumps(file, ensure_ascii=False).encode()


def merges_as_text(file: Any) -> None:
    file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]


def with_hole(file: Any) -> None:
    file["model"]["vocab"]["hole"] = 5000


def without_kind(file: Any) -> None:
    del file["model"]["type"]


USUAL: dict[str, bytes] = {
    "plain": byte_pairs().to_str().encode(),
    "indented": byte_pairs().to_str(pretty=True).encode(),
    "options": byte_pairs(
        dropout=0.0, unk_token="<unk>", fuse_unk=True, byte_fallback=True, ignore_merges=True
    )
    .to_str()
    .encode(),
    "suffix": byte_pairs(end_of_word_suffix="</w>").to_str().encode(),
    "prefix": tokenizers.Tokenizer(
        models.BPE({"l": 0, "##o": 1, "lo": 2}, [("l", "##o")], continuing_subword_prefix="##")
    )
    .to_str()
    .encode(),
    "normalised": lowercase().to_str().encode(),
    "hole": changed(with_hole),
    "no added tokens": changed(lambda file: file["added_tokens"].clear()),
}
UNUSUAL: dict[str, bytes] = {
    "added outside the vocabulary": outside().to_str().encode(),
    "merges as text": changed(merges_as_text),
    "kind left out": changed(without_kind),
    "unknown option": changed(lambda file: file["model"].update(newer=1)),
    "pieces": tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("low", -1.0), ("er", -2.0)], 0))
    .to_str()
    .encode(),
    "words": tokenizers.Tokenizer(models.WordLevel({"low": 3, "<unk>": 0}, "<unk>"))
    .to_str()
    .encode(),
    "nothing": tokenizers.Tokenizer(models.BPE()).to_str().encode(),
}


@pytest.mark.parametrize("name", [*USUAL, *UNUSUAL])
def test_a_file_is_read_as_the_library_reads_it(name: str) -> None:
    data = (USUAL | UNUSUAL)[name]
    expected = tokenizers.Tokenizer.from_buffer(data)
    found, id_extent = read_tokenizer(data)
    assert found.to_str() == expected.to_str()
    vocabulary = expected.get_vocab(with_added_tokens=True)
    assert found.get_vocab(with_added_tokens=True) == vocabulary
    assert id_extent == max(vocabulary.values(), default=-1) + 1
    for text in TEXTS:
        assert found.encode(text).ids == expected.encode(text).ids
    everything = sorted(vocabulary.values())
    for special in (False, True):
        expected_text = expected.decode(everything, skip_special_tokens=special)
        assert found.decode(everything, skip_special_tokens=special) == expected_text


@pytest.mark.parametrize("name", USUAL)
def test_the_usual_kind_is_read_here(name: str) -> None:
    assert _read_byte_pairs(USUAL[name]) is not None


@pytest.mark.parametrize("name", [name for name in UNUSUAL if name != "nothing"])
def test_other_kinds_are_the_librarys(name: str) -> None:
    assert _read_byte_pairs(UNUSUAL[name]) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file["model"]["merges"].append(["low", "nowhere"]),
        lambda file: file["model"]["vocab"].update(low=-1),
        lambda file: file["model"].update(dropout="much"),
        lambda file: file.update(decoder={"type": "None such"}),
    ],
)
def test_what_the_library_refuses_is_refused(change: Callable[[Any], None]) -> None:
    data = changed(change)
    with pytest.raises(Exception):  # noqa: B017  # the library raises nothing else
        tokenizers.Tokenizer.from_buffer(data)
    with pytest.raises(Exception):  # noqa: B017
        read_tokenizer(data)
