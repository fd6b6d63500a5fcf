"""Calls as tags that carry names, with one tag for each argument.

    <tool_call>
    <function=find_part>
    <parameter=code>
    AB-12
    </parameter>
    </function>
    </tool_call>

Values are neither escaped nor typed: types come from the request's schemas. What models get wrong
is read as what it must have meant: missing closing tags, a newline where a `>` belongs, no outer
tags around a declared function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from helios.contract.model import ToolSyntax
from helios.frontend.response.arguments import ArgumentWriter
from helios.frontend.response.deltas import Sink
from helios.frontend.response.marked_text import MarkerSigns, is_signed
from helios.frontend.response.matching import (
    Markers,
    Source,
    Verdict,
    starts,
    starts_with_any,
)
from helios.frontend.response.names import NAME_LIMIT, is_name, may_become_name
from helios.frontend.response.parameter_types import ToolSchemas, json_of
from helios.frontend.response.value_text import ValueText

_NAME_END: Final = re.compile(r"[>\n]")
_STRING: Final = frozenset(["string"])
# Kinds of values in which no tag can be.
_TAGLESS: Final = frozenset(["integer", "number", "boolean", "null"])


class FunctionTags:
    """One response's calls. `tools` declares types and names."""

    def __init__(self, syntax: ToolSyntax, signs: MarkerSigns, tools: ToolSchemas) -> None:
        self._plain = signs.plain
        self._tools = tools
        sign = signs.sign
        self._open, self._close = sign(syntax.open), sign(syntax.close)
        self._call_open, self._call_close = sign(syntax.call_open), sign(syntax.call_close)
        self._argument_open = sign(syntax.argument_open)
        self._argument_close = sign(syntax.argument_close)
        self.openers: tuple[str, ...] = (self._open, self._call_open)
        self.first_only: tuple[str, ...] = ()
        self._between = Markers([*self.openers, self._close, self._call_close, self._argument_open])
        ends = [self._argument_close, self._call_close, "\n" + self._argument_open]
        if is_signed(self._close):
            ends.append(self._close)
        self._value = ValueText(ends, self._plain)
        self._writer: ArgumentWriter | None = None
        self._state: Callable[[Source, Sink], bool | None] = self._outside
        self._name = self._key = ""
        self._kinds = _STRING
        self._in_value = False

    def begins(self, text: str, *, final: bool) -> Verdict:
        """As `CallSyntax` says: the outer tag counts with the inner one after it, the inner one
        alone with the name of a declared tool."""
        if text.startswith(self._open):
            inner = text[len(self._open) :].lstrip()
            verdict = starts(inner, self._call_open, final=final)
            if verdict is not Verdict.YES:
                return verdict
            return self._has_name(inner[len(self._call_open) :], final=final, declared=False)
        return self._has_name(text[len(self._call_open) :], final=final, declared=True)

    def enter(self) -> None:
        """As `CallSyntax` says."""
        self._state = self._outside

    def step(self, source: Source, sink: Sink) -> bool | None:
        """As `CallSyntax` says."""
        return self._state(source, sink)

    def finish(self, source: Source, sink: Sink) -> None:
        """Closes a call that was cut: a string keeps what there is of it, without the beginning
        of a tag; another value is left out, since half of it may mean something else."""
        if self._writer is None:
            return
        if self._in_value and self._kinds == _STRING:
            text = self._value.before_tag(source.text)
            self._writer.text(self._plain(text.removesuffix("\n")))
        self._end_call(complete=not self._in_value)

    # ------------------------------------------------------------ states

    def _outside(self, source: Source, sink: Sink) -> bool | None:
        """Between calls: another one begins, or the calls have ended."""
        text = source.text
        bare = text.lstrip()
        verdict = starts_with_any(bare, self.openers, final=source.final)
        if verdict is Verdict.YES:
            verdict = self.begins(bare, final=source.final)
        if verdict is Verdict.MORE:
            return False
        if verdict is Verdict.NO:
            return None
        if bare.startswith(self._open):
            bare = bare[len(self._open) :].lstrip()
        source.text = bare[len(self._call_open) :]
        self._state = self._name_state
        return True

    def _name_state(self, source: Source, sink: Sink) -> bool:
        found = _NAME_END.search(source.text)
        assert found is not None, "`begins` has seen the end of the name"
        self._name = self._plain(source.text[: found.start()]).strip()
        source.drop(found.end())
        self._writer = ArgumentWriter(sink)
        self._writer.begin(self._name)
        self._state = self._arguments
        return True

    def _arguments(self, source: Source, sink: Sink) -> bool:
        """Between arguments; what is no tag here is noise."""
        before, marker = self._between.find(source.text, final=source.final)
        source.drop(len(before))
        if marker is None:
            if source.final:
                source.text = ""
            return False
        if marker == self._argument_open:
            found = _NAME_END.search(source.text, len(marker))
            if found is None:
                return False
            after = source.text[found.end() :]
            wrapped = found[0] == "\n"
            if wrapped and not after and not source.final:
                return False  # a `>` may follow the newline
            self._key = self._plain(source.text[len(marker) : found.start()]).strip()
            source.text = after.removeprefix(">") if wrapped else after
            self._begin_value(wrapped=wrapped)
            return True
        if marker in (self._call_close, self._close):
            source.drop(len(marker))
            self._end_call(complete=True)
            self._state = self._outside if marker == self._close else self._after_function
            return True
        # Another call begins before this one was closed, unless the opener is only mentioned.
        verdict = self.begins(source.text, final=source.final)
        if verdict is Verdict.MORE:
            return False
        if verdict is Verdict.NO:
            source.drop(len(marker))
            return True
        self._end_call(complete=True)
        self._state = self._outside
        return True

    def _begin_value(self, *, wrapped: bool) -> None:
        assert self._writer is not None
        self._kinds = self._tools.kinds(self._name, self._key) or _STRING
        self._value.begin(self._kinds)
        self._in_value = True
        if self._kinds == _STRING:
            self._writer.string(self._key)
        self._state = self._value_state if wrapped else self._value_start

    def _value_start(self, source: Source, sink: Sink) -> bool:
        if not source.text and not source.final:
            return False
        if source.text.startswith("\n"):
            source.drop(1)
            if not source.text and not source.final:
                self._state = self._value_state
                return False
        self._state = self._value_state
        return True

    def _value_state(self, source: Source, sink: Sink) -> bool:
        before, marker = self._value.find(source, final=source.final)
        if marker is None:
            if source.final:
                return False  # `finish` knows what to do
            if before.endswith("\n"):
                before = before[:-1]  # it may belong to the closing tag
            source.drop(len(before))
            self._more(before)
            return False
        verdict = self._ends_value(source.text[len(before) :], marker, final=source.final)
        if verdict is Verdict.MORE:
            kept = before.removesuffix("\n")
            source.drop(len(kept))
            self._more(kept)
            return False
        if verdict is Verdict.NO:
            source.drop(len(before) + len(marker))
            self._more(before + marker)
            return True
        if not self._value.whole(source, before):
            return True
        source.drop(len(before))
        self._more(before.removesuffix("\n"))
        if marker == self._argument_close:
            source.drop(len(marker))
        self._end_value()
        self._state = self._arguments
        return True

    def _ends_value(self, text: str, marker: str, *, final: bool) -> Verdict:
        """Whether a tag in a value ends it. A closing tag does with a tag after it, or the end;
        an argument's opening tag does at the beginning of a line; the outer closing tag, where it
        is a token, with another call or nothing after it. Else values mention it: models have one
        token for it, whatever they mean by it."""
        if marker == self._close:
            return self._ends_all(text[len(marker) :], final=final)
        if marker == self._argument_close:
            after = [self._argument_open, self._call_close, self._close, self._argument_close]
        elif marker == self._call_close:
            after = [self._close, *self.openers]
        else:
            return self._has_name(text[len(marker) :], final=final, declared=False)
        rest = text[len(marker) :].lstrip()
        verdict = starts_with_any(rest, after, final=False)
        if verdict is Verdict.MORE and final:
            return Verdict.YES  # the response was cut within what follows
        return verdict

    def _ends_all(self, after: str, *, final: bool) -> Verdict:
        """Whether the outer closing tag in a value ends the call, by what stands after it."""
        if self._kinds <= _TAGLESS:
            return Verdict.YES
        bare = after.lstrip()
        if not bare:
            return Verdict.YES if final else Verdict.MORE
        verdict = starts(bare, self._open, final=final)
        return self.begins(bare, final=final) if verdict is Verdict.YES else verdict

    def _after_function(self, source: Source, sink: Sink) -> bool:
        bare = source.text.lstrip()
        verdict = starts(bare, self._close, final=source.final)
        if verdict is Verdict.MORE:
            return False
        if verdict is Verdict.YES:
            source.text = bare[len(self._close) :]
        self._state = self._outside
        return True

    # ------------------------------------------------------------ parts

    def _has_name(self, text: str, *, final: bool, declared: bool) -> Verdict:
        """Whether a legal name stands here, and its end; a `declared` one if that is asked."""
        found = _NAME_END.search(text, 0, NAME_LIMIT + 1)
        if found is None:
            return Verdict.MORE if not final and may_become_name(text.strip()) else Verdict.NO
        name = text[: found.start()].strip()
        known = is_name(name) and (not declared or self._tools.declares(name))
        return Verdict.YES if known else Verdict.NO

    def _more(self, text: str) -> None:
        assert self._writer is not None
        if self._kinds == _STRING:
            self._writer.text(self._plain(text))
        else:
            self._value.keep(text)

    def _end_value(self) -> None:
        assert self._writer is not None
        self._in_value = False
        if self._kinds == _STRING:
            self._writer.end_string()
        else:
            self._writer.value(self._key, json_of(self._value.take(), self._kinds))

    def _end_call(self, *, complete: bool) -> None:
        assert self._writer is not None
        self._writer.end(complete=complete)
        self._writer = None
        self._in_value = False
