"""Chat templates of the kinds that are public, written anew: same structure, other words.

A style is a template with the markers of its tokenizer. What its conversations may hold is said by
`speaks`; what calls and reasoning look like in answers isn't its business.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

FOLDER: Final = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Style:
    """`special` and `tags` are the tokenizer's added tokens; `tokens` the template's variables,
    `variables` further ones that it knows. `speaks` are of: system, tools, results, reasoning,
    documents, parts, names; `several` calls in a message."""

    name: str
    special: tuple[str, ...]
    tags: tuple[str, ...] = ()
    tokens: dict[str, str] = field(default_factory=dict)
    variables: tuple[dict[str, Any], ...] = ({},)
    speaks: frozenset[str] = frozenset({"system"})
    several: bool = True

    @property
    def template(self) -> str:
        """The template's source."""
        return _read(self.name)

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers."""
        return self.special + self.tags

    def tokenizer(self, kind: str) -> bytes:
        """A tokenizer.json; `kind` is of KINDS."""
        return _tokenizer(kind, self.special, self.tags)


@functools.cache
def _read(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text("utf-8")


def _speaks(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TOOL_TAGS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_THINK: Final = ("<think>", "</think>")
_CHATML: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_THINKING: Final = ({}, {"enable_thinking": False}, {"enable_thinking": True})

STYLES: Final = {
    style.name: style
    for style in (
        Style("turns", _CHATML),
        Style(
            "brackets",
            ("<s>", "</s>"),
            tokens={"bos_token": "<s>", "eos_token": "</s>"},
        ),
        Style(
            "headers",
            ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            tokens={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
            variables=(
                {"date_string": "26 Jul 2031"},
                {"date_string": "x", "tools_in_user_message": False},
            ),
            speaks=_speaks("system tools results"),
            several=False,
        ),
        Style(
            "think_json",
            _CHATML,
            _TOOL_TAGS + _THINK,
            variables=_THINKING,
            speaks=_speaks("system tools results reasoning"),
        ),
        Style(
            "function_tags",
            _CHATML,
            _TOOL_TAGS + _THINK,
            variables=_THINKING,
            speaks=_speaks("system tools results"),
        ),
        Style(
            "argument_tags",
            ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
            (*_TOOL_TAGS, *_THINK, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
            variables=({}, {"enable_thinking": False}, {"clear_thinking": False}),
            speaks=_speaks("system tools results reasoning parts"),
        ),
        Style(
            "call_blocks",
            (
                *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
                *("<｜User｜>", "<｜Assistant｜>"),
            ),
            (
                *("<｜calls▁begin｜>", "<｜calls▁end｜>", "<｜call▁begin｜>", "<｜call▁end｜>"),
                *("<｜output▁begin｜>", "<｜output▁end｜>", "<｜sep｜>", *_THINK),
            ),
            tokens={"bos_token": "<｜begin▁of▁sentence｜>"},
            variables=({}, {"thinking": True}),
            speaks=_speaks("system tools results"),
        ),
        Style(
            "call_list",
            (
                *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]"),
                *("[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
            ),
            tokens={"bos_token": "<s>", "eos_token": "</s>"},
            speaks=_speaks("system tools results"),
        ),
        Style(
            "channels",
            (
                *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
                *("<|return|>", "<|call|>"),
            ),
            variables=({}, {"reasoning_effort": "high"}),
            speaks=_speaks("system tools results reasoning"),
            several=False,
        ),
        Style(
            "model_turns",
            ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"),
            tokens={"bos_token": "<bos>"},
            speaks=_speaks("system parts"),
        ),
        Style(
            "role_tokens",
            ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
            ("<|tool|>", "<|/tool|>"),
            tokens={"eos_token": "<|endoftext|>"},
        ),
        Style(
            "documents",
            ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
            variables=({}, {"controls": {"length": "short"}}),
            speaks=_speaks("system documents"),
        ),
        Style(
            "call_sections",
            ("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>"),
            (
                *("<|im_middle|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
                *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
                *("<|media_start|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>"),
            ),
            speaks=_speaks("system tools results parts names"),
        ),
    )
}

KINDS: Final = ("bytes", "pieces", "metaspace")
_MERGES: Final = (
    *("h e", "l l", "he ll", "hell o", "i m", "< |", "| >", "im _", "t h", "th ink", "i n"),
    *("in k", "{ \"", "\" :", "e n", "en d", "t o", "to ol", "o l", "o ol", "u s", "us er", "e r"),
)  # fmt: skip


@functools.cache
def _tokenizer(kind: str, special: tuple[str, ...], tags: tuple[str, ...]) -> bytes:
    space = "Ġ" if kind == "bytes" else "▁"
    if kind == "bytes":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    else:
        alphabet = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁"]
        alphabet += [chr(code) for code in range(0x21, 0x7F)]
    merges = [tuple(merge.split(" ")) for merge in (*_MERGES, f"{space} w", f"{space} {space}")]
    known = set(alphabet)
    kept = []
    for left, right in merges:
        if left in known and right in known:
            known.add(left + right)
            kept.append((left, right))
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys((*special, *alphabet)))}
    for left, right in kept:
        vocabulary.setdefault(left + right, len(vocabulary))
    model = models.BPE(vocab=vocabulary, merges=kept, byte_fallback=kind != "bytes")
    library = Tokenizer(model)
    if kind == "bytes":
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
    else:
        fallback = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        if kind == "pieces":
            library.normalizer = normalizers.Sequence(
                [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            )
        else:
            library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        library.decoder = decoders.Sequence([decoders.Replace("▁", " "), *fallback])
    library.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    library.add_tokens([AddedToken(t, special=False, normalized=False) for t in tags])
    return library.to_str().encode()
