"""Calls as JSON objects in tags, or bare at an answer's beginning.

    <tool_call>
    {"name": "find_part", "arguments": {"code": "AB-12"}}
    </tool_call>

An opener counts with a call after it; else it is text. Several objects may stand in one pair of
tags, and the closing one may be missing. Without tags an object counts only where the answer
begins, with the name of a declared tool and no keys but a call's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from helios.contract.model import ToolSyntax
from helios.frontend.response.deltas import Sink
from helios.frontend.response.json_calls import CallKeys, CallLook, CallObject, Outcome
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.response.matching import Markers, Source, Verdict, starts
from helios.frontend.response.names import is_name
from helios.frontend.response.parameter_types import ToolSchemas

_OTHER_KEYS: Final = frozenset(["type", "id"])


class TaggedJson:
    """One response's calls in tags."""

    bare = False

    def __init__(self, syntax: ToolSyntax, signs: MarkerSigns, tools: ToolSchemas) -> None:
        self._plain = signs.plain
        self._tools = tools
        self._open, self._close = signs.sign(syntax.open), signs.sign(syntax.close)
        defaults = CallKeys()
        self._keys = CallKeys(
            syntax.name_keys or defaults.names,
            syntax.arguments_keys or defaults.arguments,
            _OTHER_KEYS if self.bare else None,
        )
        openers = [self._open, "{"] if self.bare else [self._open]
        self.openers: tuple[str, ...] = tuple(filter(None, openers))
        self.first_only: tuple[str, ...] = ("{",) if self.bare else ()
        self._ends = Markers(filter(None, (self._open, self._close)))
        self._look = CallLook(self._fresh_call)
        self._call: CallObject | None = None
        self._state: Callable[[Source, Sink], bool | None] = self._outside

    def begins(self, text: str, *, final: bool) -> Verdict:
        """As `CallSyntax` says."""
        inner = text.removeprefix(self._open) if self._open else text
        return self._look.look(inner, final=final)

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

    # ------------------------------------------------------------ states

    def _outside(self, source: Source, sink: Sink) -> bool | None:
        """Between calls: another one begins, or the calls have ended."""
        bare = source.text.lstrip(" \t\r\n;" if self.bare else " \t\r\n")
        verdict = Verdict.NO
        for opener in self.openers:
            verdict = starts(bare, opener, final=source.final)
            if verdict is not Verdict.NO:
                break
        if verdict is Verdict.YES:
            verdict = self.begins(bare, final=source.final)
        if verdict is Verdict.MORE:
            return False
        if verdict is Verdict.NO:
            return None
        source.text = bare.removeprefix(self._open) if self._open else bare
        self._begin()
        return True

    def _begin(self) -> None:
        self._call = self._fresh_call()
        self._state = self._in_call

    def _in_call(self, source: Source, sink: Sink) -> bool:
        assert self._call is not None
        if self._call.step(source, sink) is Outcome.MORE:
            return False
        well_formed = self._call.complete
        self._call = None
        if self.bare:
            self._state = self._outside
        else:
            self._state = self._after_call if well_formed else self._after_broken_call
        return True

    def _after_call(self, source: Source, sink: Sink) -> bool:
        """Inside the tags, after an object: another one, or the closing tag, or neither."""
        bare = source.text.lstrip(" \t\r\n,}]")
        if not bare and not source.final:
            return False
        verdict = starts(bare, self._close, final=source.final)
        if verdict is Verdict.NO and bare.startswith("{"):
            verdict = self._look.look(bare, final=source.final)
            if verdict is Verdict.YES:
                source.text = bare
                self._begin()
                return True
        if verdict is Verdict.MORE:
            return False
        if verdict is Verdict.YES:
            source.text = bare[len(self._close) :]
        self._state = self._outside
        return True

    def _after_broken_call(self, source: Source, sink: Sink) -> bool:
        """What stands between a call that couldn't be read on and the next tag is noise."""
        before, marker = self._ends.find(source.text, final=source.final)
        source.drop(len(before))
        if marker is None:
            if source.final:
                source.text = ""
            return False
        if marker == self._close:
            source.drop(len(marker))
        self._state = self._outside
        return True

    def _fresh_call(self) -> CallObject:
        declares = self._tools.declares if self.bare else is_name
        return CallObject(self._keys, self._plain, declares)


class BareJson(TaggedJson):
    """One response's calls without tags; `open` may announce one anywhere."""

    bare = True
