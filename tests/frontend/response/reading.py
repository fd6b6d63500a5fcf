"""Syntaxes as tests read them: a contract, made-up marker tokens, and one-shot or cut readings.

A text in tests writes a marker's spelling; `Syntax.marked` turns it into signs where the syntax
counts it as a token. `plain_` forms stay spelled, as a model that quotes a marker writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helios.contract.frontend_decoder import decode_frontend
from helios.contract.model import FrontendContract
from helios.frontend.response.deltas import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Delta,
    Reasoning,
)
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.response.parameter_types import ToolSchemas
from helios.frontend.response.parser import ResponseParser
from helios.frontend.response.selection import parser_for
from helios.frontend.response.start import Start
from helios.schema import contract_pb2

QUOTE = "\ue000"  # put into a marker's spelling where it is to stay text


@dataclass
class Call:
    """A call as it was read; `arguments` is text."""

    name: str
    arguments: str = ""
    complete: bool | None = None
    call_id: str = ""

    @property
    def value(self) -> Any:
        """The arguments as JSON."""
        return json.loads(self.arguments)


@dataclass
class Response:
    """Deltas put together."""

    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)

    @property
    def named(self) -> list[tuple[str, Any]]:
        """Calls as (name, arguments)."""
        return [(call.name, call.value) for call in self.calls]


def put_together(deltas: Iterable[Delta]) -> Response:
    """The response that deltas add up to; checks their order and numbering."""
    response = Response()
    for delta in deltas:
        match delta:
            case Reasoning(text):
                assert text
                response.reasoning += text
            case Content(text):
                assert text
                response.content += text
            case CallBegin(index, name, call_id):
                assert index == len(response.calls)
                assert name
                assert all(call.complete is not None for call in response.calls)
                response.calls.append(Call(name, call_id=call_id))
            case CallArguments(index, fragment):
                assert index == len(response.calls) - 1
                assert fragment
                assert response.calls[index].complete is None
                response.calls[index].arguments += fragment
            case CallEnd(index, complete):
                assert index == len(response.calls) - 1
                assert response.calls[index].complete is None
                response.calls[index].complete = complete
    assert all(call.complete is not None for call in response.calls)
    return response


@dataclass(frozen=True)
class Syntax:
    """A contract's syntax and the markers that are tokens in the tests' made-up vocabulary."""

    name: str
    contract: FrontendContract
    tokens: tuple[str, ...]
    start: Start = Start.ANSWER

    @property
    def signs(self) -> MarkerSigns:
        """Signs of the tokens."""
        return MarkerSigns({marker: 1000 + i for i, marker in enumerate(self.tokens)})

    def marked(self, text: str) -> str:
        """The text as a parser gets it."""
        signs = self.signs
        for marker in sorted(self.tokens, key=len, reverse=True):
            text = text.replace(marker, signs.sign(marker))
        return text.replace(QUOTE, "")

    def parser(self, tools: dict[str, Any] | None, start: Start) -> ResponseParser:
        """A parser; `tools` maps names to properties' schemas."""
        schemas = None
        if tools is not None:
            schemas = ToolSchemas(
                {name: {"properties": properties} for name, properties in tools.items()}
            )
        return parser_for(self.contract, self.signs, schemas, start)

    def read(
        self, pieces: str | Sequence[str], tools: dict[str, Any] | None, *, thinking: bool = False
    ) -> Response:
        """The response that comes in these pieces, whose marks are set before."""
        parser = self.parser(tools, Start.REASONING if thinking else self.start)
        deltas: list[Delta] = []
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            deltas += parser.push(piece)
        return put_together([*deltas, *parser.finish()])


def syntax(
    name: str,
    *,
    tool_parser: str = "NONE",
    tool_syntax: contract_pb2.ToolSyntax | None = None,
    reasoning_parser: str = "NONE",
    reasoning_syntax: contract_pb2.ReasoningSyntax | None = None,
    envelope: contract_pb2.EnvelopeSyntax | None = None,
    tokens: Iterable[str] = (),
    start: Start = Start.ANSWER,
) -> Syntax:
    """A syntax by its contract's fields."""
    message = contract_pb2.FrontendContract(
        tool_parser=contract_pb2.ToolParser.Value(f"TOOL_PARSER_{tool_parser}"),
        reasoning_parser=contract_pb2.ReasoningParser.Value(f"REASONING_PARSER_{reasoning_parser}"),
        image_preparation=contract_pb2.IMAGE_PREPARATION_NONE,
        image_layout=contract_pb2.IMAGE_LAYOUT_NONE,
        tool_syntax=tool_syntax,
        reasoning_syntax=reasoning_syntax,
        envelope=envelope,
    )
    return Syntax(name, decode_frontend(message, "frontend", 100), tuple(tokens), start)


def every_way(text: str) -> list[list[str]]:
    """The text whole, character by character, and cut in two at each place."""
    ways = [[text], list(text)]
    ways += [[text[:cut], text[cut:]] for cut in range(1, len(text))]
    return ways


def read_every_way(
    by: Syntax, text: str, tools: dict[str, Any] | None, *, thinking: bool = False
) -> Response:
    """Reads the text in every way, which must agree."""
    marked = by.marked(text)
    first = by.read(marked, tools, thinking=thinking)
    for pieces in every_way(marked):
        assert by.read(pieces, tools, thinking=thinking) == first, pieces
    return first
