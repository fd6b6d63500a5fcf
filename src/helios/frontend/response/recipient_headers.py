"""Headers that address a message: to itself is reasoning, to the user content, to a tool a call.

    <|start|>assistant to=clock<|message|><atem:function_calls>…

A message to a tool has one invocation, of exactly that tool; one to a recipient that stands for
any tool has one of a declared tool. Text beside the invocation is noise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from helios.contract.model import EnvelopeSyntax, ToolSyntax
from helios.frontend.response.deltas import Sink
from helios.frontend.response.frames import Body, NoBody, TextBody
from helios.frontend.response.invocation_tags import InvocationTags
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.response.matching import Source
from helios.frontend.response.parameter_types import ToolSchemas

_ROLE: Final = "assistant"
_TO: Final = "to="
_RECIPIENT: Final = re.compile(r"(?:^|\s)to=(\S*)")
_VISIBLE: Final = frozenset(["user", "commentary", ""])
_REASONING: Final = "self"


class RecipientHeaders:
    """As `Headers` says. `tools` is None where calls aren't looked for."""

    def __init__(
        self,
        envelope: EnvelopeSyntax,
        syntax: ToolSyntax,
        signs: MarkerSigns,
        tools: ToolSchemas | None,
        text: TextBody,
    ) -> None:
        self._generic = frozenset(envelope.generic_recipients)
        self._syntax = syntax
        self._signs = signs
        self._tools = tools
        self._text = text

    def possible(self, text: str) -> bool:
        """As `Headers` says."""
        words = text.split()
        if len(words) > 2:
            return False
        if words and _ROLE.startswith(words[0]):
            words = words[1:]
        return not words or (
            len(words) == 1 and (words[0].startswith(_TO) or _TO.startswith(words[0]))
        )

    def body(self, header: str) -> Body:
        """As `Headers` says."""
        found = _RECIPIENT.search(header)
        recipient = self._signs.plain(found[1]) if found is not None else ""
        if recipient == _REASONING:
            return self._text.begin(reasoning=True)
        if recipient in _VISIBLE:
            return self._text.begin(reasoning=False)
        if self._tools is None:
            return NoBody()
        counts: Callable[[str], bool] = recipient.__eq__
        if recipient in self._generic:
            counts = self._tools.declares
        return InvocationBody(InvocationTags(self._syntax, self._signs, self._tools, counts=counts))


class InvocationBody:
    """A message that holds an invocation."""

    def __init__(self, calls: InvocationTags) -> None:
        self._calls = calls
        self._source = Source()
        self._over = False

    def push(self, text: str, sink: Sink) -> None:
        """As `Body` says."""
        self._source.text += text
        self._read(sink)

    def finish(self, sink: Sink) -> None:
        """As `Body` says."""
        self._source.final = True
        self._read(sink)
        self._calls.finish(self._source, sink)

    def _read(self, sink: Sink) -> None:
        while not self._over:
            went_on = self._calls.step_in_message(self._source, sink)
            if went_on is None:
                self._over = True
            elif not went_on:
                return
        self._source.text = ""
