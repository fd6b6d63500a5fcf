"""A call written as one JSON object: `{"name": …, "arguments": {…}}`, with keys in any order.

Arguments are given out while they come once the name is known; until then they wait. Other keys
are read over. Arguments may be JSON inside a string, as some models write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from helios.dataclass import dataclass
from helios.frontend.response.deltas import Sink
from helios.frontend.response.json_stream import JsonStream
from helios.frontend.response.matching import Source, Verdict
from helios.frontend.response.names import is_name

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_KEY: Final = re.compile(r'"((?:[^"\\]|\\.)*)"[ \t\r\n]*:', re.DOTALL)
_KEY_LIMIT: Final = 256
_LOOK_LIMIT: Final = 1 << 16  # characters before a name is there


class Outcome(Enum):
    """How reading a call goes on."""

    MORE = "more text is needed"
    DONE = "the call is over"
    NO_CALL = "this is no call"


@dataclass(frozen=True, slots=True)
class CallKeys:
    """The keys under which name and arguments stand. `others` may stand beside them, any where it
    is None."""

    names: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    others: frozenset[str] | None = None


class ArgumentsStream:
    """A call's arguments, which are one JSON value, given out as one JSON object."""

    def __init__(self, plain: Callable[[str], str]) -> None:
        self._json = JsonStream(plain)
        self._given = False
        self._is_text = False  # JSON inside a string
        self._text: list[str] = []

    def step(self, source: Source, emit: Callable[[str], None]) -> bool:
        """Reads on; whether the value is over, or can't be read on."""
        if not self._given:
            space = _SPACE.match(source.text)
            assert space is not None
            source.drop(space.end())
            if not source.text:
                return False
            if source.text[0] not in '{"':  # an object was meant, or nothing
                text, used = self._json.push(source.text, final=source.final)
                source.drop(used)
                self._text.append(text)
                return self._json.done or self._json.broken
            self._given = True
            self._is_text = source.text[0] == '"'
        text, used = self._json.push(source.text, final=source.final)
        source.drop(used)
        if self._is_text:
            self._text.append(text)
        else:
            emit(text)
        return self._json.done or self._json.broken

    def finish(self, emit: Callable[[str], None]) -> bool:
        """Completes what was given out; whether it was complete already."""
        if not self._given:
            emit("{}")
            return self._json.done and "".join(self._text) == "null"
        if not self._is_text:
            emit(self._json.completion())
            return self._json.done
        inner = json.loads("".join(self._text) + self._json.completion())
        copy = JsonStream(str)
        text, _ = copy.push(inner, final=True)
        if not text.startswith("{"):
            emit("{}")
            return not inner.strip()
        emit(text + copy.completion())
        return copy.done


class CallObject:
    """Reads one call. `declares` says which names count; a call of another name is none."""

    def __init__(
        self,
        keys: CallKeys,
        plain: Callable[[str], str],
        declares: Callable[[str], bool] = is_name,
    ) -> None:
        self._keys = keys
        self._plain = plain
        self._declares = declares
        self._state: Callable[[Source, Sink], Outcome | None] = self._start
        self._name: str | None = None
        self._name_stream: JsonStream | None = None
        self._name_text: list[str] = []
        self._arguments: ArgumentsStream | None = None
        self._arguments_done = True
        self._early: list[str] = []  # arguments that came before the name
        self._skipped = JsonStream(plain)
        self._complete = True

    @property
    def complete(self) -> bool:
        """Whether nothing of what was read was malformed."""
        return self._complete

    @property
    def begun(self) -> bool:
        """Whether the name is known, so that this is a call."""
        return self._name is not None

    def step(self, source: Source, sink: Sink) -> Outcome:
        """Reads on. After NO_CALL the source's text is no longer what it was: look first, on a
        copy."""
        while True:
            outcome = self._state(source, sink)
            if outcome is not None:
                return outcome

    def finish(self, sink: Sink) -> None:
        """The text ends inside the call, which has begun."""
        self._end(sink, complete=False)

    # ------------------------------------------------------------ states

    def _start(self, source: Source, sink: Sink) -> Outcome | None:
        _skip(source)
        if not source.text:
            return Outcome.MORE
        if source.text[0] != "{":
            return Outcome.NO_CALL
        source.drop(1)
        self._state = self._key
        return None

    def _key(self, source: Source, sink: Sink) -> Outcome | None:
        _skip(source)
        text = source.text
        if not text:
            return Outcome.MORE
        if text[0] == "}":
            source.drop(1)
            return self._over(sink)
        if text[0] == ",":
            source.drop(1)
            return None
        found = _KEY.match(text)
        if found is None:
            unfinished = text[0] == '"' and len(text) <= _KEY_LIMIT
            return Outcome.MORE if unfinished and not source.final else self._bad(sink)
        source.drop(found.end())
        key = found[1]
        if key in self._keys.names and self._name is None:
            self._name_stream = JsonStream(self._plain)
            self._state = self._name_value
        elif key in self._keys.arguments and self._arguments is None:
            self._arguments = ArgumentsStream(self._plain)
            self._arguments_done = False
            self._state = self._arguments_value
        elif self._keys.others is None or key in self._keys.others:
            self._skipped = JsonStream(self._plain)
            self._state = self._other_value
        else:
            return self._bad(sink)
        return None

    def _name_value(self, source: Source, sink: Sink) -> Outcome | None:
        stream = self._name_stream
        assert stream is not None
        text, used = stream.push(source.text, final=source.final)
        source.drop(used)
        self._name_text.append(text)
        if not stream.done:
            return self._bad(sink) if stream.broken else Outcome.MORE
        name = json.loads("".join(self._name_text))
        if not isinstance(name, str) or not self._declares(name):
            return Outcome.NO_CALL
        self._name = name
        sink.begin_call(name)
        sink.arguments("".join(self._early))
        self._state = self._key
        return None

    def _arguments_value(self, source: Source, sink: Sink) -> Outcome | None:
        assert self._arguments is not None
        emit = self._early.append if self._name is None else sink.arguments
        over = self._arguments.step(source, emit)
        if not over:
            return Outcome.MORE
        self._complete = self._arguments.finish(emit)
        self._arguments_done = True
        if not self._complete and self._name is not None:
            return self._bad(sink)
        self._state = self._key
        return None

    def _other_value(self, source: Source, sink: Sink) -> Outcome | None:
        _, used = self._skipped.push(source.text, final=source.final)
        source.drop(used)
        if not self._skipped.done:
            return self._bad(sink) if self._skipped.broken else Outcome.MORE
        self._state = self._key
        return None

    # ------------------------------------------------------------ ends

    def _over(self, sink: Sink) -> Outcome:
        if self._name is None:
            return Outcome.NO_CALL
        self._end(sink, complete=True)
        return Outcome.DONE

    def _bad(self, sink: Sink) -> Outcome:
        """The object can't be read on."""
        self._complete = False
        if self._name is None:
            return Outcome.NO_CALL
        self._end(sink, complete=False)
        return Outcome.DONE

    def _end(self, sink: Sink, *, complete: bool) -> None:
        if self._arguments is None:
            sink.arguments("{}")
        elif not self._arguments_done:
            self._arguments.finish(sink.arguments)
            self._arguments_done = True
        sink.end_call(complete=complete and self._complete)


class CallLook:
    """Looks whether a text that grows begins with a call. Each look reads what is new to it."""

    def __init__(self, fresh_call: Callable[[], CallObject]) -> None:
        self._fresh_call = fresh_call
        self._forget()

    def _forget(self) -> None:
        self._seen = ""
        self._source = Source()
        self._call = self._fresh_call()

    def look(self, text: str, *, final: bool) -> Verdict:
        """Whether an object that begins here is a call."""
        looked_at = text[:_LOOK_LIMIT]
        if not looked_at.startswith(self._seen):
            self._forget()
        self._source.text += looked_at[len(self._seen) :]
        self._source.final = final
        self._seen = looked_at
        outcome = self._call.step(self._source, Sink())
        undecided = outcome is Outcome.MORE and not (self._call.begun or final)
        if undecided and len(text) <= _LOOK_LIMIT:
            return Verdict.MORE
        verdict = Verdict.YES if self._call.begun else Verdict.NO
        self._forget()
        return verdict


def _skip(source: Source) -> None:
    space = _SPACE.match(source.text)
    assert space is not None
    source.drop(space.end())
