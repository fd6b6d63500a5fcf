"""A call's arguments as a growing JSON object, written from named values.

For syntaxes that write arguments one by one. A string grows while it comes; every other value is
written once it is whole, so that nothing written has to be taken back.
"""

from __future__ import annotations

import json
import re
from typing import Final

from helios.frontend.response.deltas import Sink

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f]')


def escaped(text: str) -> str:
    """The text as the inside of a JSON string; characters beyond ASCII stay as they are."""
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


class ArgumentWriter:
    """One call's arguments. After `begin`: any number of `value`, or of `string` followed by
    `text` and `end_string`; then `end`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._count = 0
        self._in_string = False

    @property
    def begun(self) -> bool:
        """Whether an argument has been written."""
        return self._count > 0

    def begin(self, name: str) -> None:
        """A call begins."""
        self._count = 0
        self._in_string = False
        self._sink.begin_call(name)

    def value(self, key: str, value: str) -> None:
        """An argument whose value is whole; `value` is JSON."""
        self._sink.arguments(self._key(key) + value)

    def string(self, key: str) -> None:
        """A string argument begins."""
        self._sink.arguments(self._key(key) + '"')
        self._in_string = True

    def text(self, text: str) -> None:
        """More of the string."""
        self._sink.arguments(escaped(text))

    def end_string(self) -> None:
        """The string is whole."""
        self._sink.arguments('"')
        self._in_string = False

    def end(self, *, complete: bool) -> None:
        """The call is over; a string that is still growing is closed."""
        if self._in_string:
            self.end_string()
        self._sink.arguments("}" if self._count else "{}")
        self._sink.end_call(complete=complete)

    def _key(self, key: str) -> str:
        opening = "," if self._count else "{"
        self._count += 1
        return f"{opening}{json.dumps(key, ensure_ascii=False)}:"
