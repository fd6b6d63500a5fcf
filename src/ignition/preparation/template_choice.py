"""Which chat template a core carries: a caller's, the checkpoint's, or that of a family.

Families that ship code in place of a template are told by their tokenizer's markers, and get the
one in `templates`, in whose first lines a checkpoint's own words can be put. `prepare` asks
`choose`; the names that `Options` holds are recorded, so a rebuild chooses the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from helios.errors import ContractError
from ignition.preparation.chat_syntax import AUTO, NONE
from ignition.preparation.checkpoints.checkpoint import Checkpoint
from ignition.preparation.errors import CheckpointError
from ignition.preparation.templates import (
    BY_NAME,
    FamilyTemplate,
    Words,
    with_words,
    words_of,
)

_TEMPLATE: Final = "--chat-template"
_WORDS: Final = "--template-words"
FILE_LIMIT_NBYTES: Final = 1 << 20


@dataclass(frozen=True)
class TemplateOptions:
    """What a preparation may choose. `text` is a template to use whatever the checkpoint has;
    `family` names one of `templates`, is `none` for the checkpoint's own or no template, or `auto`;
    `words` are a JSON object, or empty: what stands in the first lines of the family's."""

    text: str | None = None
    family: str = AUTO
    words: str = ""


BY_CHECKPOINT: Final = TemplateOptions()


@dataclass(frozen=True)
class ChosenTemplate:
    """The template, if there is one, and the family whose it is, or `none`. `tools` and `reasoning`
    are the syntaxes of chats, or `auto` where the template tells them; `note` is for the user."""

    text: str | None
    family: str
    tools: str
    reasoning: str
    note: str | None = None


def read_options(template: str, words: Path | None) -> TemplateOptions:
    """The command's `--chat-template`, which is `auto`, `none`, a family or a file, and
    `--template-words`, a file. Raises ContractError for a file that is none of what it should be,
    OSError for one that can't be read."""
    written = "" if words is None else _canonical(_read(words, _WORDS))
    if template in (AUTO, NONE, *BY_NAME):
        return TemplateOptions(family=template, words=written)
    if not Path(template).is_file():
        raise ContractError(
            f"there is no file {template!r}",
            where=_TEMPLATE,
            remedy=f"Give a Jinja file, or {AUTO}, {NONE}, {', '.join(BY_NAME)}",
        )
    return TemplateOptions(_read(Path(template), _TEMPLATE), NONE, written)


def check(options: TemplateOptions) -> None:
    """Refuses what no checkpoint could make right, naming the command's option."""
    if options.family not in (AUTO, NONE, *BY_NAME):
        raise ContractError(
            f"there is no template {options.family!r}",
            where=_TEMPLATE,
            remedy=f"Choose of {AUTO}, {NONE}, {', '.join(BY_NAME)}, or give a file",
        )
    words = _words(options)
    if options.family in BY_NAME:
        _check_words(BY_NAME[options.family], words)
    elif words and options.family == NONE:
        raise _no_words()


def choose(
    checkpoint: Checkpoint, options: TemplateOptions, tools: str, reasoning: str
) -> ChosenTemplate:
    """The template of a checkpoint, with the syntaxes that are asked for. Raises ContractError
    where the options don't fit the checkpoint, CheckpointError for a damaged one."""
    which = _family(checkpoint, options, tools, reasoning)
    if which is None:
        if options.words:
            raise _no_words()
        text = checkpoint.chat_template() if options.text is None else options.text
        return ChosenTemplate(text, NONE, tools, reasoning)
    family, words = which.value, _words(options)
    _check_words(which, words)
    if not _fits(which, tools, reasoning):
        raise ContractError(
            f"the template {family.name} writes {family.tools} and {family.reasoning}, not"
            f" {tools} and {reasoning}",
            where="--tools, --reasoning",
            remedy=f"Leave them out, or give a template of their syntax with {_TEMPLATE} FILE",
        )
    missing = [name for name in family.words if name not in words]
    chosen = ChosenTemplate(
        with_words(which, words),
        family.name,
        family.tools if tools == AUTO else tools,
        family.reasoning if reasoning == AUTO else reasoning,
    )
    told = f"the chat template is that of the family {family.name}, told by its markers"
    if options.family != AUTO:
        told = f"the chat template is that of the family {family.name}, as asked for"
    ours = f"; Ignition's words stand for the checkpoint's own {', '.join(missing)} ({_WORDS})"
    return ChosenTemplate(
        chosen.text,
        chosen.family,
        chosen.tools,
        chosen.reasoning,
        f"{told} (calls: {chosen.tools}, reasoning: {chosen.reasoning}){ours if missing else ''}",
    )


def _family(
    checkpoint: Checkpoint, options: TemplateOptions, tools: str, reasoning: str
) -> FamilyTemplate | None:
    """The family whose template is used. One that isn't named has to have all its markers in the
    tokenizer of a checkpoint that has no template, and the syntaxes that are."""
    if options.text is not None or options.family == NONE:
        return None
    if options.family in BY_NAME:
        return BY_NAME[options.family]
    if checkpoint.chat_template() is not None:
        return None
    added = _added_tokens(checkpoint.tokenizer_json())
    for which in FamilyTemplate:
        if added.issuperset(which.value.markers) and _fits(which, tools, reasoning):
            return which
    return None


def _fits(which: FamilyTemplate, tools: str, reasoning: str) -> bool:
    """Whether a template writes these syntaxes, as far as they are named."""
    own = which.value
    return tools in (AUTO, NONE, own.tools) and reasoning in (AUTO, NONE, own.reasoning)


def _added_tokens(tokenizer_json: bytes) -> set[str]:
    try:
        return {str(token["content"]) for token in json.loads(tokenizer_json)["added_tokens"]}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"its added tokens can't be read ({error!r})", where="tokenizer"
        ) from None


def _read(path: Path, option: str) -> str:
    if path.stat().st_size > FILE_LIMIT_NBYTES:
        raise ContractError(
            f"{path} is larger than {FILE_LIMIT_NBYTES} bytes",
            where=option,
            remedy="Is it another file?",
        )
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ContractError(
            f"{path} is not UTF-8: {error}", where=option, remedy="Save it as UTF-8"
        ) from None


def _canonical(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True)
    except ValueError as error:
        raise ContractError(
            f"is no JSON: {error}", where=_WORDS, remedy="Write an object of names and texts"
        ) from None


def _words(options: TemplateOptions) -> Mapping[str, Words]:
    words: Any = json.loads(options.words) if options.words else {}
    if not isinstance(words, dict):
        raise ContractError("is no object", where=_WORDS, remedy="Write names and their texts")
    return words


def _check_words(which: FamilyTemplate, words: Mapping[str, Words]) -> None:
    """Each word has to be one of the template's, and of its kind."""
    own = words_of(which)
    for name, given in words.items():
        if name not in own:
            raise ContractError(
                f"the template {which.value.name} has no word {name!r}",
                where=_WORDS,
                remedy=f"It has {', '.join(own)}",
            )
        known = own[name]
        if isinstance(known, str):
            if not isinstance(given, str):
                raise ContractError(f"{name!r} is no text", where=_WORDS, remedy="Write a text")
            continue
        texts = isinstance(given, dict) and all(isinstance(t, str) for t in given.values())
        if not texts or not set(given) <= set(known):
            raise ContractError(
                f"{name!r} is no object of texts by these names",
                where=_WORDS,
                remedy=f"Write texts for some of {', '.join(known)}",
            )


def _no_words() -> ContractError:
    return ContractError(
        "no family's template is used, so there is nowhere to put words",
        where=_WORDS,
        remedy=f"Leave it out, or name the family with {_TEMPLATE}",
    )
