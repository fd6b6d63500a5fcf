"""Tiny random checkpoints without a chat template, whose tokenizer has a family's markers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ignition.preparation.templates import FamilyTemplate
from tests.checkpoints import TOKENS, VARIANTS, write_huggingface
from tests.preparation.families import BEGIN, END

# What a family's tokenizer has besides its markers, the end of a response last.
_MORE: Final = {
    FamilyTemplate.XTML: (),
    FamilyTemplate.DSML: ("<think>", "</think>", BEGIN, END),
    FamilyTemplate.RECIPIENT_HEADERS: ("<|begin_of_text|>",),
}
_ENDS: Final = {
    FamilyTemplate.XTML: "<|end_of_msg|>",
    FamilyTemplate.DSML: END,
    FamilyTemplate.RECIPIENT_HEADERS: "<|eot|>",
}
_BEGINS: Final = {FamilyTemplate.DSML: BEGIN, FamilyTemplate.RECIPIENT_HEADERS: "<|begin_of_text|>"}


def write_templateless(folder: Path, which: FamilyTemplate | None = None) -> Path:
    """A checkpoint folder; without a family its tokenizer has no markers."""
    added = [] if which is None else [*which.value.markers, *_MORE[which]]
    variant = replace(VARIANTS["llama"], context=4096, vocabulary=TOKENS + len(added))
    write_huggingface(folder, variant)
    ids = {token: TOKENS + number for number, token in enumerate(added)}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)

    def add(tokenizer: dict[str, Any]) -> None:
        special = set(_ENDS.values()) | set(_BEGINS.values())
        for token, number in ids.items():
            entry = {"id": number, "content": token, **plain, "special": token in special}
            tokenizer["added_tokens"].append(entry)

    def drop(config: dict[str, Any]) -> None:
        del config["chat_template"]
        if which is not None:
            config |= {"eos_token": _ENDS[which], "bos_token": _BEGINS.get(which)}

    def end(config: dict[str, Any]) -> None:
        if which is not None:
            config["eos_token_id"] = ids[_ENDS[which]]

    _alter(folder / "tokenizer.json", add)
    _alter(folder / "tokenizer_config.json", drop)
    _alter(folder / "config.json", end)
    _alter(folder / "generation_config.json", end)
    return folder


def _alter(path: Path, change: Any) -> None:
    read = json.loads(path.read_text())
    change(read)
    path.write_text(json.dumps(read))
