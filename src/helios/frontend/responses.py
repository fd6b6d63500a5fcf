"""How one core's responses are read and constrained: its syntax, markers and grammars together.

`prepare` asks where a response starts and what it has to be, `output` makes parsers. Grammars are
compiled by a library whose import takes a while, so it is loaded with the first one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helios.contract.enums import ReasoningParser, ToolParser
from helios.contract.model import FrontendContract
from helios.dataclass import dataclass
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.response.parameter_types import ToolSchemas
from helios.frontend.response.parser import ResponseParser
from helios.frontend.response.prompt_tail import opened_text
from helios.frontend.response.selection import parser_for, signs_of
from helios.frontend.tokenizer import Tokenizer
from helios.frontend.tools import Tools

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from helios.frontend.grammar.compiler import GrammarCompiler


@dataclass(frozen=True, slots=True)
class ResponseStart:
    """What reading a response needs of its request: the tools that it may call, None where calls
    aren't looked for, and the marked text of what stands of it in the prompt already. With
    `opaque` its answer has a form of its own, in which markers are text. `chooses`: a tool isn't
    called because the request names it."""

    tools: ToolSchemas | None = None
    opened: str = ""
    opaque: bool = False
    chooses: bool = True


class ResponseReading:
    """Made once a core. Safe to use from several threads."""

    def __init__(
        self, contract: FrontendContract, tokenizer: Tokenizer, sampled_tokens: int
    ) -> None:
        self._contract = contract
        self._tokenizer = tokenizer
        self._sampled_tokens = sampled_tokens
        self.signs: MarkerSigns = signs_of(contract, tokenizer)

    def start(self, prompt: Sequence[int], tools: Tools, *, opaque: bool) -> ResponseStart:
        """Where the response to a prompt starts; an `opaque` one has an answer of a form of its
        own."""
        opened = opened_text(prompt, self._contract.envelope, self._tokenizer, self.signs)
        schemas = {tool.name: tool.parameters for tool in tools.callable}
        return ResponseStart(
            ToolSchemas(schemas) if schemas else None, opened, opaque, tools.named is None
        )

    def parser(self, start: ResponseStart) -> ResponseParser:
        """A parser of one response, which has read what stands in the prompt."""
        return parser_for(self._contract, self.signs, start.tools, opaque=start.opaque)

    def reads(self, tools: Tools) -> bool:
        """Whether a response to a request with these tools is more than text."""
        contract = self._contract
        calls = contract.tool_parser is not ToolParser.NONE and bool(tools.callable)
        return calls or contract.reasoning_parser is not ReasoningParser.NONE

    @property
    def knows_calls(self) -> bool:
        """Whether the core's syntax has calls."""
        return self._contract.tool_parser is not ToolParser.NONE

    @property
    def call_opener(self) -> str:
        """The marker that opens calls; empty where none does."""
        return self._contract.tool_syntax.open

    @property
    def knows_reasoning(self) -> bool:
        """Whether the core's syntax tells reasoning from answers."""
        return self._contract.reasoning_parser is not ReasoningParser.NONE

    def is_text(self, token: int) -> bool:
        """Whether a token is text, and neither special nor a marker."""
        return token not in self._tokenizer.special_ids and token not in self.signs.by_token

    def grammar(
        self,
        constraint: Constraint,
        opened: str | None,
        allowed: Sequence[int] | None = None,
    ) -> str:
        """The grammar of a response that goes on after `opened`; of a bare output where that is
        None. `allowed` are the only tokens that may come. Raises RequestError for what can't be
        made one, or can't be begun."""
        return self._compiler.compile(constraint, opened, allowed)

    @property
    def vocabulary(self) -> LLTokenizer:
        """The core's vocabulary as grammars see it."""
        return self._compiler.vocabulary

    @functools.cached_property
    def _compiler(self) -> GrammarCompiler:
        from helios.frontend.grammar.compiler import GrammarCompiler

        return GrammarCompiler(self._contract, self._tokenizer, self.signs, self._sampled_tokens)
