"""What a client may ask an answer to be: JSON, a regular expression's match, a grammar's text.

Values are checked for what they are; whether a grammar can be made of them is the compiler's
question. Anything that isn't supported is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.grammar.client_grammars import checked_lark
from helios.frontend.grammar.gbnf import lark_of_gbnf
from helios.frontend.grammar.lark import GrammarWriter, regex
from helios.frontend.grammar.patterns import UnsupportedPatternError, whole
from helios.frontend.grammar.schema_limits import VALUES_LIMIT, check_text
from helios.frontend.grammar.schemas import enforceable


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """JSON of a schema; `{"type": "object"}` for any object."""

    schema: Mapping[str, Any]
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        return writer.json(enforceable(self.schema, self.where))


@dataclass(frozen=True, slots=True)
class RegexAnswer:
    """A match of a whole regular expression, written as schemas' patterns are."""

    pattern: str
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        try:
            return writer.lark(f"start: {regex(whole(self.pattern).regex)}")
        except UnsupportedPatternError as error:
            raise RequestError(
                f"can't be used: {error}", where=self.where, remedy="Write it another way"
            ) from None


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """One of some texts."""

    options: tuple[str, ...]
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        return writer.terminal(" | ".join(json.dumps(option) for option in self.options))


@dataclass(frozen=True, slots=True)
class GrammarAnswer:
    """A text of a Lark grammar, from its rule `start`."""

    text: str
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        return writer.lark(checked_lark(self.text, self.where))


@dataclass(frozen=True, slots=True)
class GbnfAnswer:
    """A text of a GBNF grammar, from its rule `root`, as GGML's tools read them."""

    text: str
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        return writer.lark(lark_of_gbnf(self.text, self.where))


Structure = JsonAnswer | RegexAnswer | ChoiceAnswer | GrammarAnswer | GbnfAnswer


def json_schema(value: object, where: str) -> JsonAnswer:
    """A schema as clients send it: an object, or text that holds one, or true for any value."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RequestError(
                f"is no JSON: {error}", where=where, remedy="Send the schema as an object"
            ) from None
    if value is True:
        value = {}
    if not isinstance(value, Mapping):
        raise RequestError(
            f"is a {type(value).__name__}, not a JSON schema",
            where=where,
            remedy="Send an object with JSON schema's keywords",
        )
    return JsonAnswer(value, where)


def choice(value: object, where: str) -> ChoiceAnswer:
    """Some texts, each nonempty; those that come twice count once."""
    options = value if isinstance(value, list) else []
    if not options or not all(isinstance(option, str) and option for option in options):
        raise RequestError(
            "is no list of texts", where=where, remedy="Send at least one nonempty text"
        )
    if len(options) > VALUES_LIMIT:
        raise RequestError(
            f"has {len(options)} texts", where=where, remedy=f"Send at most {VALUES_LIMIT}"
        )
    for option in options:
        check_text(option, where, ())
    return ChoiceAnswer(tuple(dict.fromkeys(options)), where)


def text_of(value: object, where: str) -> str:
    """A nonempty text."""
    if not isinstance(value, str) or not value:
        raise RequestError("is no text", where=where, remedy="Send a nonempty text")
    return value
