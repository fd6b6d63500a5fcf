"""Calls as tags around pairs of key and value.

    <tool_call>set_alarm
    <arg_key>time</arg_key>
    <arg_value>07:30</arg_value>
    </tool_call>

With newlines between the parts or without, which is read alike. A name ends where the first key or
the closing tag begins. Types come from the request's schemas; an argument that no schema knows is
JSON if it can be read so. Missing tags around keys and values are taken as written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from helios.contract.model import ToolSyntax
from helios.frontend.response.arguments import ArgumentWriter
from helios.frontend.response.deltas import Sink
from helios.frontend.response.marked_text import MarkerSigns, is_signed
from helios.frontend.response.matching import Markers, Source, Verdict, starts, starts_with_any
from helios.frontend.response.names import is_name, may_become_name
from helios.frontend.response.parameter_types import ToolSchemas, json_of, json_or_string
from helios.frontend.response.value_text import ValueText

_STRING: Final = frozenset(["string"])
_ESCAPED_NEWLINE: Final = "\\n"  # models write it after names, as two characters


class ArgumentTags:
    """One response's calls. `tools` declares types."""

    def __init__(self, syntax: ToolSyntax, signs: MarkerSigns, tools: ToolSchemas) -> None:
        self._plain = signs.plain
        self._tools = tools
        sign = signs.sign
        self._open, self._close = sign(syntax.open), sign(syntax.close)
        self._key_open, self._key_close = (
            sign(syntax.argument_open),
            sign(syntax.argument_name_close),
        )
        self._value_open, self._value_close = sign(syntax.value_open), sign(syntax.argument_close)
        self.openers: tuple[str, ...] = (self._open,)
        self.first_only: tuple[str, ...] = ()
        self._after_name = Markers([self._key_open, self._key_close, self._close])
        self._between = Markers([self._open, self._close, self._key_open, self._key_close])
        self._key_ends = Markers([self._key_close, self._value_open, self._close])
        # A tag that text may spell ends a value only as the one that belongs to it.
        others = (self._key_open, self._close)
        tags = [self._value_close, *filter(is_signed, others)]
        self._value = ValueText(tags, self._plain)
        self._state: Callable[[Source, Sink], bool | None] = self._outside
        self._writer: ArgumentWriter | None = None
        self._name = self._key = ""
        self._kinds: frozenset[str] | None = _STRING
        self._in_argument = False

    def begins(self, text: str, *, final: bool) -> Verdict:
        """As `CallSyntax` says: a name follows, and after it a key or the end of the call."""
        rest = text[len(self._open) :]
        name, marker = self._after_name.find(rest, final=False)
        name = name.strip()
        if marker is None:
            words = name.split(maxsplit=2)  # a name, and a key whose opening tag is missing
            possible = len(words) <= 2 and all(map(may_become_name, words))
            return Verdict.MORE if possible and not final else Verdict.NO
        if marker == self._key_close:  # the key's opening tag is missing
            words = name.split(maxsplit=2)
            return Verdict.YES if len(words) == 2 and all(map(is_name, words)) else Verdict.NO
        return Verdict.YES if is_name(_bare_name(name)) else Verdict.NO

    def enter(self) -> None:
        """As `CallSyntax` says."""
        self._state = self._outside

    def step(self, source: Source, sink: Sink) -> bool | None:
        """As `CallSyntax` says."""
        return self._state(source, sink)

    def finish(self, source: Source, sink: Sink) -> None:
        """Closes a call that was cut: a string keeps what there is of it, another value is left
        out. A call that lacks only its closing tag is complete."""
        if self._writer is None:
            return
        if self._in_argument and self._kinds == _STRING and self._state == self._value_state:
            self._writer.text(self._plain(self._value.before_tag(source.text)))
        self._end_call(complete=not self._in_argument)

    # ------------------------------------------------------------ states

    def _outside(self, source: Source, sink: Sink) -> bool | None:
        """Between calls: another one begins, or the calls have ended."""
        bare = source.text.lstrip()
        verdict = starts(bare, self._open, final=source.final)
        if verdict is Verdict.YES:
            verdict = self.begins(bare, final=source.final)
        if verdict is Verdict.MORE:
            return False
        if verdict is Verdict.NO:
            return None
        rest = bare[len(self._open) :]
        before, marker = self._after_name.find(rest, final=False)
        if marker == self._key_close:
            name = before.split(maxsplit=1)[0]
            source.text = rest[rest.index(name) + len(name) :]
        else:
            name = before
            source.text = rest[len(before) :]
        self._name = self._plain(_bare_name(name.strip()))
        self._writer = ArgumentWriter(sink)
        self._writer.begin(self._name)
        self._state = self._arguments
        return True

    def _arguments(self, source: Source, sink: Sink) -> bool:
        """Between arguments. Text here is noise, unless it turns out to be a key whose opening
        tag is missing."""
        text = source.text
        before, marker = self._between.find(text, final=source.final)
        if marker is None:
            if source.final:
                source.text = ""
            return False
        if marker == self._key_open:
            source.drop(len(before) + len(marker))
            self._in_argument = True
            self._state = self._key_state
            return True
        if marker == self._key_close:
            source.drop(len(before) + len(marker))
            self._begin_value(before.strip())
            return True
        if marker == self._close:
            source.drop(len(before) + len(marker))
            self._end_call(complete=True)
            self._state = self._outside
            return True
        verdict = self.begins(text[len(before) :], final=source.final)
        if verdict is Verdict.MORE:
            return False
        if verdict is Verdict.NO:
            source.drop(len(before) + len(marker))
            return True
        source.drop(len(before))
        self._end_call(complete=True)
        self._state = self._outside
        return True

    def _key_state(self, source: Source, sink: Sink) -> bool:
        before, marker = self._key_ends.find(source.text, final=source.final)
        if marker is None:
            return False
        source.drop(len(before))
        if marker == self._close:  # a key without a value
            self._in_argument = False
            self._state = self._arguments
            return True
        if marker == self._key_close:
            source.drop(len(marker))
        self._begin_value(before.strip())
        return True

    def _begin_value(self, key: str) -> None:
        self._key = self._plain(key)
        self._kinds = self._tools.kinds(self._name, self._key)
        self._value.begin(self._kinds)
        self._in_argument = True
        self._state = self._value_start

    def _value_start(self, source: Source, sink: Sink) -> bool:
        bare = source.text.lstrip()
        verdict = starts(bare, self._value_open, final=source.final)
        if verdict is Verdict.MORE:
            return False
        source.text = bare[len(self._value_open) :] if verdict is Verdict.YES else bare
        if self._kinds == _STRING:
            assert self._writer is not None
            self._writer.string(self._key)
        self._state = self._value_state
        return True

    def _value_state(self, source: Source, sink: Sink) -> bool:
        final = source.final
        before, marker = self._value.find(source, final=False)
        if marker is not None and marker == self._value_close and not is_signed(marker):
            rest = source.text[len(before) + len(marker) :].lstrip()
            verdict = starts_with_any(rest, (self._key_open, self._close, self._open), final=False)
            if verdict is Verdict.MORE and not final:
                source.drop(len(before))
                self._more(before)
                return False
            if verdict is Verdict.NO:
                source.drop(len(before) + len(marker))
                self._more(before + marker)
                return True
        if final and marker is None:
            return False  # `finish` knows what to do
        if marker is not None and not self._value.whole(source, before):
            return True
        source.drop(len(before))
        self._more(before)
        if marker is None:
            return False
        if marker == self._value_close:
            source.drop(len(marker))
        self._end_value()
        self._state = self._arguments
        return True

    # ------------------------------------------------------------ parts

    def _more(self, text: str) -> None:
        if self._kinds == _STRING:
            assert self._writer is not None
            self._writer.text(self._plain(text))
        else:
            self._value.keep(text)

    def _end_value(self) -> None:
        assert self._writer is not None
        self._in_argument = False
        if self._kinds == _STRING:
            self._writer.end_string()
            return
        value = self._value.take()
        typed = json_or_string(value) if self._kinds is None else json_of(value, self._kinds)
        self._writer.value(self._key, typed)

    def _end_call(self, *, complete: bool) -> None:
        assert self._writer is not None
        self._writer.end(complete=complete)
        self._writer = None
        self._in_argument = False


def _bare_name(name: str) -> str:
    return name.removesuffix(_ESCAPED_NEWLINE).rstrip()
