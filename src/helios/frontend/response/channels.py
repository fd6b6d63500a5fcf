"""Headers with channels: analysis is reasoning, a recipient makes a call, else content.

    <|channel|>commentary to=functions.find <|constrain|>json<|message|>{"code": "AB"}<|call|>

Headers come in many forms: the recipient before the channel or after it, with or without a
format. Words that mean nothing here are read over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from helios.contract.model import EnvelopeSyntax, ToolSyntax
from helios.frontend.response.deltas import Sink
from helios.frontend.response.frames import Body, NoBody, TextBody
from helios.frontend.response.json_calls import ArgumentsStream
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.response.matching import Source
from helios.frontend.response.names import is_name
from helios.frontend.response.parameter_types import ToolSchemas

_RECIPIENT: Final = re.compile(r"\bto=([^\s<\ud800-\udfff]+)")
_WORD: Final = re.compile(r"\s*([A-Za-z_]+)")
_REASONING: Final = "analysis"
_NO_TOOLS: Final = frozenset(["assistant", "user", "self", "commentary", "analysis", "final"])


class ChannelHeaders:
    """As `Headers` says. `tools` is None where calls aren't looked for."""

    def __init__(
        self,
        envelope: EnvelopeSyntax,
        syntax: ToolSyntax,
        signs: MarkerSigns,
        tools: ToolSchemas | None,
        text: TextBody,
    ) -> None:
        self._plain = signs.plain
        self._channel = signs.sign(envelope.channel_open)
        self._prefix = syntax.name_prefix
        self._tools = tools
        self._text = text

    def possible(self, text: str) -> bool:
        """As `Headers` says: a header may hold anything."""
        return True

    def body(self, header: str) -> Body:
        """As `Headers` says."""
        found = _RECIPIENT.search(header)
        recipient = found[1].removeprefix(self._prefix) if found is not None else ""
        if recipient and recipient not in _NO_TOOLS and is_name(recipient):
            return ArgumentsBody(recipient, self._plain) if self._tools is not None else NoBody()
        _, _, rest = header.partition(self._channel)
        word = _WORD.match(rest)
        return self._text.begin(reasoning=word is not None and word[1] == _REASONING)


class ArgumentsBody:
    """A message that is a call's arguments."""

    def __init__(self, name: str, plain: Callable[[str], str]) -> None:
        self._name = name
        self._arguments = ArgumentsStream(plain)
        self._source = Source()
        self._begun = False
        self._over = False

    def push(self, text: str, sink: Sink) -> None:
        """As `Body` says."""
        self._begin(sink)
        self._source.text += text
        self._read(sink)

    def finish(self, sink: Sink) -> None:
        """As `Body` says."""
        self._begin(sink)
        self._source.final = True
        self._read(sink)
        sink.end_call(complete=self._arguments.finish(sink.arguments))

    def _begin(self, sink: Sink) -> None:
        if not self._begun:
            self._begun = True
            sink.begin_call(self._name)

    def _read(self, sink: Sink) -> None:
        self._over = self._over or self._arguments.step(self._source, sink.arguments)
        if self._over:
            self._source.text = ""  # noise after the arguments
