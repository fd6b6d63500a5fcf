"""Calls after a marker: a JSON list of them, or names with JSON arguments.

[TOOL_CALLS] [{"name": "tick", "arguments": {}}]
[TOOL_CALLS]tick[ARGS]{}[TOOL_CALLS]pay[CALL_ID]a1b2c3d4e[ARGS]{"id": 1}
"""

from __future__ import annotations

from collections.abc import Callable

from helios.contract.model import ToolSyntax
from helios.frontend.response.deltas import Sink
from helios.frontend.response.json_calls import (
    ArgumentsStream,
    CallKeys,
    CallLook,
    CallObject,
    Outcome,
)
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.response.matching import Markers, Source, Verdict, starts
from helios.frontend.response.names import is_name, may_become_name
from helios.frontend.response.parameter_types import ToolSchemas


class CallList:
    """One response's calls."""

    def __init__(self, syntax: ToolSyntax, signs: MarkerSigns, tools: ToolSchemas) -> None:
        self._plain = signs.plain
        self._open = signs.sign(syntax.open)
        self._name_close = signs.sign(syntax.name_close)
        self._id_open = signs.sign(syntax.call_id_open)
        self._after_name = Markers(filter(None, (self._name_close, self._id_open)))
        self._after_id = Markers([self._name_close])
        self.openers: tuple[str, ...] = (self._open,)
        self.first_only: tuple[str, ...] = ()
        self._look = CallLook(self._fresh_call)
        self._call: CallObject | None = None
        self._arguments: ArgumentsStream | None = None
        self._in_list = False
        self._name = ""
        self._state: Callable[[Source, Sink], bool | None] = self._outside

    def begins(self, text: str, *, final: bool) -> Verdict:
        """As `CallSyntax` says: a list, an object or a name with arguments follows."""
        rest = text[len(self._open) :].lstrip()
        if rest.startswith("["):
            inner = rest[1:].lstrip()
            if inner.startswith("]"):
                return Verdict.YES
            return self._look.look(inner, final=final)
        if rest.startswith("{"):
            return self._look.look(rest, final=final)
        name, marker = self._after_name.find(rest, final=False)
        if marker is None:
            return Verdict.MORE if not final and may_become_name(name.rstrip()) else Verdict.NO
        return Verdict.YES if is_name(name.strip()) else Verdict.NO

    def enter(self) -> None:
        """As `CallSyntax` says."""
        self._state = self._outside

    def step(self, source: Source, sink: Sink) -> bool | None:
        """As `CallSyntax` says."""
        return self._state(source, sink)

    def finish(self, source: Source, sink: Sink) -> None:
        """As `CallSyntax` says."""
        if self._call is not None:
            self._call.finish(sink)
            self._call = None
        elif self._arguments is not None:
            sink.end_call(complete=self._arguments.finish(sink.arguments))
            self._arguments = None

    # ------------------------------------------------------------ states

    def _outside(self, source: Source, sink: Sink) -> bool | None:
        bare = source.text.lstrip()
        verdict = starts(bare, self._open, final=source.final)
        if verdict is Verdict.YES:
            verdict = self.begins(bare, final=source.final)
        if verdict is Verdict.MORE:
            return False
        if verdict is Verdict.NO:
            return None
        rest = bare[len(self._open) :].lstrip()
        self._in_list = rest.startswith("[")
        if self._in_list:
            source.text = rest[1:]
            self._state = self._next_in_list
            return True
        source.text = rest
        if rest.startswith("{"):
            self._call = self._fresh_call()
            self._state = self._in_object
            return True
        before, marker = self._after_name.find(rest, final=False)
        assert marker is not None, "`begins` has seen what ends the name"
        self._name = self._plain(before.strip())
        source.drop(len(before) + len(marker))
        if marker == self._name_close:
            self._begin(sink, "")
        else:
            self._state = self._call_id
        return True

    def _call_id(self, source: Source, sink: Sink) -> bool:
        before, marker = self._after_id.find(source.text, final=source.final)
        if marker is None:
            if source.final:
                source.text = ""
            return False
        source.drop(len(before) + len(marker))
        self._begin(sink, self._plain(before.strip()))
        return True

    def _begin(self, sink: Sink, call_id: str) -> None:
        sink.begin_call(self._name, call_id)
        self._arguments = ArgumentsStream(self._plain)
        self._state = self._in_arguments

    def _in_arguments(self, source: Source, sink: Sink) -> bool:
        assert self._arguments is not None
        if not self._arguments.step(source, sink.arguments):
            return False
        sink.end_call(complete=self._arguments.finish(sink.arguments))
        self._arguments = None
        self._state = self._outside
        return True

    def _next_in_list(self, source: Source, sink: Sink) -> bool:
        bare = source.text.lstrip(" \t\r\n,")
        if not bare:
            return False
        if bare.startswith("{"):
            verdict = self._look.look(bare, final=source.final)
            if verdict is Verdict.MORE:
                return False
            if verdict is Verdict.YES:
                source.text = bare
                self._call = self._fresh_call()
                self._state = self._in_object
                return True
        source.text = bare.removeprefix("]")
        self._state = self._outside
        return True

    def _in_object(self, source: Source, sink: Sink) -> bool:
        assert self._call is not None
        if self._call.step(source, sink) is Outcome.MORE:
            return False
        self._call = None
        self._state = self._next_in_list if self._in_list else self._outside
        return True

    def _fresh_call(self) -> CallObject:
        return CallObject(CallKeys(), self._plain)
