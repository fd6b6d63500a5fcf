"""Calls as a block of named invocations with named parameters (DSML, and ATEM's bodies).

    <calls>
    <invoke name="read_log">
    <parameter name="path" string="true">/var/a b.log</parameter>
    <parameter name="tail" string="false">40</parameter>
    </invoke>
    </calls>

`string` says whether a value is text as it is or JSON. Without it the request's schemas do, and
without those a value is JSON if it can be read so. Nothing is escaped, and this is no XML.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from helios.contract.model import ToolSyntax
from helios.frontend.response.arguments import ArgumentWriter
from helios.frontend.response.deltas import Sink
from helios.frontend.response.marked_text import MarkerSigns, is_signed
from helios.frontend.response.matching import Markers, Source, Verdict, starts_with_any
from helios.frontend.response.names import NAME_LIMIT, is_name
from helios.frontend.response.parameter_types import (
    ToolSchemas,
    is_json,
    json_of,
    json_or_string,
)
from helios.frontend.response.value_text import ValueText

_STRING: Final = frozenset(["string"])
_SAYS_STRING: Final = re.compile(r'\bstring\s*=\s*"(true|false)"')
_HEAD_LIMIT: Final = 4 * NAME_LIMIT  # characters of a parameter's opening tag


class InvocationTags:
    """One response's calls. `tools` declares types; `counts` says which names do."""

    def __init__(
        self,
        syntax: ToolSyntax,
        signs: MarkerSigns,
        tools: ToolSchemas,
        *,
        counts: Callable[[str], bool] = is_name,
    ) -> None:
        self._plain = signs.plain
        self._tools = tools
        self._counts = counts
        sign = signs.sign
        self._open, self._close = sign(syntax.open), sign(syntax.close)
        self._call_open, self._call_close = sign(syntax.call_open), sign(syntax.call_close)
        self._name_close = sign(syntax.name_close)
        self._parameter_open = sign(syntax.argument_open)
        self._parameter_close = sign(syntax.argument_close)
        self._key_close = sign(syntax.argument_name_close)
        self._head_close = sign(syntax.value_open)
        self.openers: tuple[str, ...] = (self._open,)
        self.first_only: tuple[str, ...] = ()
        self._between_calls = Markers([self._call_open, self._close])
        self._between_parameters = Markers(
            [self._parameter_open, self._call_close, self._call_open, self._close]
        )
        self._value = ValueText([self._parameter_close], self._plain)
        self._state: Callable[[Source, Sink], bool | None] = self._block
        self._writer: ArgumentWriter | None = None
        self._name = self._key = ""
        self._kinds: frozenset[str] | None = _STRING
        self._is_json = False
        self._in_parameter = False
        self._outside = Markers([self._open])
        self._entered = False
        self._ended_calls = 0

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

    def step_in_message(self, source: Source, sink: Sink) -> bool | None:
        """As `step`, in a message of its own: noise may stand before the block, and the message
        is over, whatever else it holds, after one call."""
        if self._state == self._block and self._ended_calls:
            return None
        if not self._entered:
            before, marker = self._outside.find(source.text, final=source.final)
            source.drop(len(before))
            if marker is None:
                return False
            self._entered = True
            self._state = self._enter
            return True
        return self._state(source, sink)

    def finish(self, source: Source, sink: Sink) -> None:
        """Closes a call that was cut: a string keeps what there is of it, another value is left
        out. A call that lacks only closing tags is complete."""
        if self._writer is None:
            return
        if self._in_parameter and self._is_string and self._state == self._value_state:
            self._writer.text(self._plain(self._value.before_tag(source.text)))
        self._end_call(complete=not self._in_parameter)

    @property
    def _is_string(self) -> bool:
        return self._kinds == _STRING and not self._is_json

    # ------------------------------------------------------------ states

    def _enter(self, source: Source, sink: Sink) -> bool:
        source.drop(len(self._open))
        self._state = self._block
        return True

    def _block(self, source: Source, sink: Sink) -> bool | None:
        """Between calls; what is no tag here is noise."""
        before, marker = self._between_calls.find(source.text, final=source.final)
        source.drop(len(before))
        if marker is None:
            if source.final:
                source.text = ""
            return False
        if marker == self._close:
            source.drop(len(marker))
            return None
        end = source.text.find(self._name_close, len(marker))
        if end < 0:
            if source.final or len(source.text) > _HEAD_LIMIT:
                source.drop(len(marker))
                return True
            return False
        name = self._plain(source.text[len(marker) : end]).strip()
        source.drop(end + len(self._name_close))
        if not is_name(name) or not self._counts(name):
            return True  # its parts are noise
        self._name = name
        self._writer = ArgumentWriter(sink)
        self._writer.begin(name)
        self._state = self._parameters
        return True

    def _parameters(self, source: Source, sink: Sink) -> bool:
        before, marker = self._between_parameters.find(source.text, final=source.final)
        source.drop(len(before))
        if marker is None:
            if source.final:
                source.text = ""
            return False
        if marker != self._parameter_open:
            if marker == self._call_close:
                source.drop(len(marker))
            self._end_call(complete=True)
            self._state = self._block
            return True
        end = source.text.find(self._head_close, len(marker))
        if end < 0:
            if source.final or len(source.text) > _HEAD_LIMIT:
                source.drop(len(marker))
                return True
            return False
        head = source.text[len(marker) : end]
        source.drop(end + len(self._head_close))
        key, _, attributes = head.partition(self._key_close)
        if not key.strip():
            return True
        self._begin_value(self._plain(key), attributes)
        return True

    def _begin_value(self, key: str, attributes: str) -> None:
        assert self._writer is not None
        self._key = key
        says_string = _SAYS_STRING.search(attributes)
        self._is_json = says_string is not None and says_string[1] == "false"
        declared = self._tools.kinds(self._name, key)
        self._kinds = _STRING if says_string and not self._is_json else declared
        self._value.begin(None if self._is_json else self._kinds)
        self._in_parameter = True
        if self._is_string:
            self._writer.string(key)
        self._state = self._value_state

    def _value_state(self, source: Source, sink: Sink) -> bool:
        before, marker = self._value.find(source, final=False)
        if marker is None and source.final:
            return False  # `finish` knows what to do
        if marker is not None and not self._value.whole(source, before):
            return True
        source.drop(len(before))
        self._more(before)
        if marker is None:
            return False
        source.drop(len(marker))
        self._end_value()
        self._state = self._parameters
        return True

    # ------------------------------------------------------------ parts

    def _more(self, text: str) -> None:
        if self._is_string:
            assert self._writer is not None
            self._writer.text(self._plain(text))
        else:
            self._value.keep(text)

    def _end_value(self) -> None:
        assert self._writer is not None
        self._in_parameter = False
        if self._is_string:
            self._writer.end_string()
            return
        value = self._value.take()
        if (self._is_json and is_json(value.strip())) or self._kinds is None:
            typed = json_or_string(value)
        else:
            typed = json_of(value, self._kinds)
        self._writer.value(self._key, typed)

    def _end_call(self, *, complete: bool) -> None:
        assert self._writer is not None
        self._writer.end(complete=complete)
        self._writer = None
        self._in_parameter = False
        self._ended_calls += 1
