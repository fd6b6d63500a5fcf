"""Calls as sections between markers, each with an id that holds its name.

    <section><call>functions.w:0<arguments>{"a": 1}</call></section>

What stands between the markers is noise. The id is the only place where later prompts can find
the name, so it is kept as the call's id.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from helios.contract.model import ToolSyntax
from helios.frontend.response.deltas import Sink
from helios.frontend.response.json_calls import ArgumentsStream
from helios.frontend.response.marked_text import MarkerSigns, is_signed
from helios.frontend.response.matching import Markers, Source, Verdict, starts_with_any
from helios.frontend.response.names import is_name
from helios.frontend.response.parameter_types import ToolSchemas

_NUMBER: Final = re.compile(r":[0-9]+$")


class CallSections:
    """One response's calls."""

    def __init__(self, syntax: ToolSyntax, signs: MarkerSigns, tools: ToolSchemas) -> None:
        self._plain = signs.plain
        self._prefix = syntax.name_prefix
        sign = signs.sign
        self._open, self._close = sign(syntax.open), sign(syntax.close)
        self._call_open, self._call_close = sign(syntax.call_open), sign(syntax.call_close)
        self._name_close = sign(syntax.name_close)
        self.openers: tuple[str, ...] = (self._open,)
        self.first_only: tuple[str, ...] = ()
        self._between = Markers([self._call_open, self._close])
        self._after_name = Markers(
            [self._name_close, self._call_close, self._call_open, self._close]
        )
        self._arguments: ArgumentsStream | None = None
        self._state: Callable[[Source, Sink], bool | None] = self._enter

    def begins(self, text: str, *, final: bool) -> Verdict:
        """As `CallSyntax` says. An opener that text can't spell needs nothing after it."""
        if is_signed(self._open):
            return Verdict.YES
        rest = text[len(self._open) :].lstrip()
        return starts_with_any(rest, (self._call_open, self._close), final=final)

    def enter(self) -> None:
        """As `CallSyntax` says."""
        self._state = self._enter

    def step(self, source: Source, sink: Sink) -> bool | None:
        """As `CallSyntax` says."""
        return self._state(source, sink)

    def finish(self, source: Source, sink: Sink) -> None:
        """As `CallSyntax` says."""
        if self._arguments is not None:
            sink.end_call(complete=self._arguments.finish(sink.arguments))
            self._arguments = None

    # ------------------------------------------------------------ states

    def _enter(self, source: Source, sink: Sink) -> bool:
        source.drop(len(self._open))
        self._state = self._section
        return True

    def _section(self, source: Source, sink: Sink) -> bool | None:
        before, marker = self._between.find(source.text, final=source.final)
        source.drop(len(before))
        if marker is None:
            if source.final:
                source.text = ""
            return False
        source.drop(len(marker))
        if marker == self._close:
            return None
        self._state = self._name
        return True

    def _name(self, source: Source, sink: Sink) -> bool:
        before, marker = self._after_name.find(source.text, final=source.final)
        if marker is None:
            if source.final:
                source.text = ""
            return False
        source.drop(len(before))
        self._state = self._section
        if marker != self._name_close:
            return True
        source.drop(len(marker))
        call_id = self._plain(before).strip()
        name = _NUMBER.sub("", call_id.removeprefix(self._prefix))
        if is_name(name):
            sink.begin_call(name, call_id)
            self._arguments = ArgumentsStream(self._plain)
            self._state = self._in_arguments
        return True

    def _in_arguments(self, source: Source, sink: Sink) -> bool:
        assert self._arguments is not None
        if not self._arguments.step(source, sink.arguments):
            return False
        sink.end_call(complete=self._arguments.finish(sink.arguments))
        self._arguments = None
        self._state = self._section
        return True
