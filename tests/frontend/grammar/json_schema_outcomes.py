"""What becomes of the corpus's keywords, found out with real grammars, and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from llguidance import LLMatcher

from helios.contract.model import FrontendContract
from helios.errors import RequestError
from helios.frontend.grammar.compiler import GrammarCompiler, parser_limits
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.schemas import ANNOTATIONS
from helios.frontend.grammar.structure import JsonAnswer
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.tools import NO_TOOLS
from tests.frontend.grammar.json_schema_cases import Case, Keyword, Text
from tests.frontend.grammar.json_schema_corpus import KEYWORDS
from tests.frontend.response.syntaxes import EVERY
from tests.frontend.response.tokens import tokenizer_with

_WHERE: Final = "schema"
_HEAD: Final = "| keyword | vocabulary | what becomes of it | how far |\n|---|---|---|---|\n"


class Outcome(Enum):
    """What becomes of a keyword's schemas."""

    ENFORCED = "enforced"
    NARROWER = "enforced, and narrower"
    ANNOTATION = "no constraint"
    REFUSED = "refused by name"
    WRONG = "**wrong**"


@dataclass(frozen=True)
class Found:
    """A keyword's outcome, and what is wrong with it."""

    keyword: Keyword
    outcome: Outcome
    problems: list[str]


class Judge:
    """Compiles schemas and asks which values their grammars admit."""

    def __init__(self) -> None:
        self._tokenizer = tokenizer_with(["<|eos|>"])
        contract: FrontendContract = EVERY[0][0].contract
        extent = self._tokenizer.id_extent
        self._compiler = GrammarCompiler(contract, self._tokenizer, MarkerSigns(), extent)

    def refusal(self, schema: Any) -> RequestError | None:
        """Why a schema is refused; None for one that isn't."""
        try:
            self._grammar(schema)
        except RequestError as error:
            return error
        return None

    def admits(self, schema: Any, text: str) -> bool:
        """Whether a schema's grammar admits a JSON text."""
        return self._admits(self._grammar(schema), text)

    def _grammar(self, schema: Any) -> str:
        return self._compiler.compile(Constraint(JsonAnswer(schema, _WHERE), NO_TOOLS), None)

    def _admits(self, grammar: str, text: str) -> bool:
        matcher = LLMatcher(self._compiler.vocabulary, grammar, limits=parser_limits())
        tokens = self._tokenizer.encode(text)
        if matcher.validate_tokens(tokens) < len(tokens):
            return False
        return bool(matcher.consume_tokens(tokens) and matcher.is_accepting())

    def problems(self, case: Case) -> Iterator[str]:
        """What is wrong with a case."""
        shown = json.dumps(case.schema)[:120]
        refusal = self.refusal(case.schema)
        if case.refused:
            if refusal is None:
                yield f"{shown} isn't refused"
            elif not refusal.where.startswith(_WHERE) or case.refused not in str(refusal):
                yield f"{shown} is refused with {refusal}, without {case.refused!r}"
            return
        if refusal is not None:
            yield f"{shown} is refused: {refusal}"
            return
        grammar = self._grammar(case.schema)
        for value in case.valid:
            for text in _written(value):
                if not self._admits(grammar, text):
                    yield f"{shown} doesn't admit {text}"
        for value in [*case.invalid, *case.narrower]:
            for text in _written(value):
                if self._admits(grammar, text):
                    yield f"{shown} admits {text}"

    def found(self, keyword: Keyword) -> Found:
        """A keyword's outcome."""
        problems = [problem for case in keyword.cases for problem in self.problems(case)]
        if problems:
            outcome = Outcome.WRONG
        elif all(case.refused for case in keyword.cases):
            outcome = Outcome.REFUSED
        elif keyword.name in ANNOTATIONS:
            outcome = Outcome.ANNOTATION
        elif any(case.narrower for case in keyword.cases):
            outcome = Outcome.NARROWER
        else:
            outcome = Outcome.ENFORCED
        return Found(keyword, outcome, problems)


def _written(value: Any) -> list[str]:
    """A value's JSON, in the styles that models write."""
    if isinstance(value, Text):
        return [value.json]
    return [
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        json.dumps(value, ensure_ascii=False, indent=2),
    ]


def outcomes() -> list[Found]:
    """Every keyword's outcome."""
    judge = Judge()
    return [judge.found(keyword) for keyword in KEYWORDS]


def table(found: list[Found]) -> str:
    """The outcomes as the page on structured output shows them."""
    rows = (
        f"| `{one.keyword.name}` | {one.keyword.vocabulary} | {one.outcome.value}"
        f" | {one.keyword.note} |\n"
        for one in found
    )
    return _HEAD + "".join(rows)
