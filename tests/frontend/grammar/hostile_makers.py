"""How a hostile structure is made, and how it should end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from helios.frontend.grammar.structural_tags import AnswerForm, structural_tag
from helios.frontend.grammar.structure import (
    GbnfAnswer,
    GrammarAnswer,
    RegexAnswer,
    choice,
    json_schema,
)

WHERE: Final = "field"
GRAMMAR: Final = "a grammar"
EITHER: Final = "either"


@dataclass(frozen=True)
class Hostile:
    """How a structure is made; `ends` is `GRAMMAR`, `EITHER`, or what a refusal has to say."""

    make: Callable[[], AnswerForm]
    ends: str


def schema(value: Any, ends: str = GRAMMAR) -> Hostile:
    return Hostile(lambda: json_schema(value, WHERE), ends)


def regex(pattern: str, ends: str = GRAMMAR) -> Hostile:
    return Hostile(lambda: RegexAnswer(pattern, WHERE), ends)


def lark(text: str, ends: str = GRAMMAR) -> Hostile:
    return Hostile(lambda: GrammarAnswer(text, WHERE), ends)


def gbnf(text: str, ends: str = GRAMMAR) -> Hostile:
    return Hostile(lambda: GbnfAnswer(text, WHERE), ends)


def options(value: list[str], ends: str = GRAMMAR) -> Hostile:
    return Hostile(lambda: choice(value, WHERE), ends)


def tag(form: Any, ends: str = EITHER) -> Hostile:
    return Hostile(lambda: structural_tag({"format": form}, WHERE), ends)
