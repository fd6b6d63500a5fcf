"""What a client may ask an answer to be: JSON, a regular expression's match, a grammar's text.

Values are checked for what they are; whether a grammar can be made of them is the compiler's
question. Anything that isn't supported is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from helios.errors import RequestError
from helios.frontend.grammar.lark import GrammarWriter, regex

# White space between JSON's tokens: enough for any style, too little to stay in for ever.
JSON_SPACE: Final = r"[ \n\r\t]{0,16}"
_OPTIONS: Final = "x-guidance"


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """JSON of a schema; `{"type": "object"}` for any object."""

    schema: Mapping[str, Any]
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        return writer.json(with_bounded_space(self.schema))


@dataclass(frozen=True, slots=True)
class RegexAnswer:
    """A match of a whole regular expression."""

    pattern: str
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        return writer.lark(f"start: {regex(self.pattern)}")


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """One of some texts."""

    options: tuple[str, ...]
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        return writer.rule(" | ".join(json.dumps(option) for option in self.options))


@dataclass(frozen=True, slots=True)
class GrammarAnswer:
    """A text of a Lark grammar, from its rule `start`."""

    text: str
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        return writer.lark(self.text)


@dataclass(frozen=True, slots=True)
class GbnfAnswer:
    """A text of a GBNF grammar, from its rule `root`, as llama.cpp reads them."""

    text: str
    where: str

    def expression(self, writer: GrammarWriter) -> str:
        """The answer in a grammar."""
        from llguidance.gbnf_to_lark import gbnf_to_lark

        return writer.lark(gbnf_to_lark(self.text))


Structure = JsonAnswer | RegexAnswer | ChoiceAnswer | GrammarAnswer | GbnfAnswer


def with_bounded_space(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with this server's white space. A client can't choose llguidance's options."""
    return {**schema, _OPTIONS: {"whitespace_pattern": JSON_SPACE}}


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
    if _OPTIONS in value:
        raise RequestError(f"{_OPTIONS} is no keyword", where=where, remedy="Leave it out")
    return JsonAnswer(value, where)


def choice(value: object, where: str) -> ChoiceAnswer:
    """Some texts, each nonempty, none twice."""
    options = value if isinstance(value, list) else []
    if not options or not all(isinstance(option, str) and option for option in options):
        raise RequestError(
            "is no list of texts", where=where, remedy="Send at least one nonempty text"
        )
    return ChoiceAnswer(tuple(dict.fromkeys(options)), where)


def text_of(value: object, where: str) -> str:
    """A nonempty text."""
    if not isinstance(value, str) or not value:
        raise RequestError("is no text", where=where, remedy="Send a nonempty text")
    return value
