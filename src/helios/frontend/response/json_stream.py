"""One JSON value out of a growing text, copied so that what was copied can always be completed.

What can't be completed without being taken back waits: a comma and a key for their value, a number
or a word for its end, an escape for its last character. What models get wrong is mended where it
is clear what was meant: raw control characters and stray backslashes in strings, a comma too many.
At anything else the stream breaks: it copies no more, and what it has copied can be completed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from helios.frontend.response.arguments import escaped

_DEPTH_LIMIT: Final = 256
_WORD_LIMIT: Final = 400  # characters of a number or a word: what is longer is none
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_KEY: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_WORD: Final = re.compile(r"[-+.\w]+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")
_WORDS: Final = ("true", "false", "null")
_SIMPLE_ESCAPES: Final = frozenset('"\\/bfnrt')
_REPLACEMENT: Final = "\\ufffd"


class _Expects(Enum):
    VALUE = "a value"
    VALUE_OR_END = "a value or the array's end"
    KEY_OR_END = "a key or the object's end"
    COLON = "a colon"
    COMMA_OR_END = "a comma or an end"
    STRING = "the rest of a string"


class JsonStream:
    """`done` once the value is whole, `broken` once it can't become one. `plain` turns what the
    text has for markers into their spelling."""

    def __init__(self, plain: Callable[[str], str]) -> None:
        self._plain = plain
        self._expects = _Expects.VALUE
        self._closers: list[str] = []
        self._waiting = ""  # a comma and a key, until their value comes
        self.done = False
        self.broken = False

    def push(self, text: str, *, final: bool) -> tuple[str, int]:
        """Copies from the beginning of `text`: what can be given out, and how many characters are
        consumed. The rest comes again with the next call, except if it is `final`."""
        out: list[str] = []
        at = 0
        while not (self.done or self.broken):
            if self._expects is not _Expects.STRING:
                space = _SPACE.match(text, at)
                assert space is not None
                at = space.end()
            if at == len(text):
                break
            used = self._next(text, at, out, final=final)
            if used == 0:
                break
            at += used
        return "".join(out), at

    def completion(self) -> str:
        """What makes a whole value of all that was given out; nothing where nothing was."""
        string = '"' if self._expects is _Expects.STRING else ""
        return string + "".join(reversed(self._closers))

    # ------------------------------------------------------------ grammar

    def _next(self, text: str, at: int, out: list[str], *, final: bool) -> int:
        """Takes one piece; the characters used, 0 where more text is needed or it broke."""
        character = text[at]
        match self._expects:
            case _Expects.STRING:
                return self._in_string(text, at, out, final=final)
            case _Expects.COLON:
                if character != ":":
                    return self._break()
                self._waiting += ":"
                self._expects = _Expects.VALUE
                return 1
            case _Expects.COMMA_OR_END:
                if character == ",":
                    self._waiting = ","
                    inside_object = self._closers[-1] == "}"
                    self._expects = _Expects.KEY_OR_END if inside_object else _Expects.VALUE_OR_END
                    return 1
                return self._end(character, out)
            case _Expects.KEY_OR_END:
                return self._key(text, at, out, final=final)
            case _Expects.VALUE_OR_END if character == "]":
                return self._end(character, out)
            case _:
                return self._value(text, at, out, final=final)

    def _key(self, text: str, at: int, out: list[str], *, final: bool) -> int:
        if text[at] == "}":
            return self._end("}", out)
        if text[at] != '"':
            return self._break()
        found = _KEY.match(text, at)
        if found is None:
            return 0
        inner: list[str] = []
        position = 0
        raw = found[1] + '"'
        while position < len(raw) - 1:
            used = self._piece(raw, position, inner, final=True)
            position += used
        self._waiting += f'"{"".join(inner)}"'
        self._expects = _Expects.COLON
        return found.end() - at

    def _value(self, text: str, at: int, out: list[str], *, final: bool) -> int:
        character = text[at]
        if character in "{[":
            if len(self._closers) == _DEPTH_LIMIT:
                return self._break()
            self._give(character, out)
            self._closers.append("}" if character == "{" else "]")
            self._expects = _Expects.KEY_OR_END if character == "{" else _Expects.VALUE_OR_END
            return 1
        if character == '"':
            self._give(character, out)
            self._expects = _Expects.STRING
            return 1
        found = _WORD.match(text, at)
        if found is None:
            return self._break()
        if found.end() - at > _WORD_LIMIT:
            return self._break()
        if found.end() == len(text) and not final:
            return 0
        word = found[0]
        if word not in _WORDS and _NUMBER.fullmatch(word) is None:
            return self._break()
        self._give(word, out)
        self._after_value()
        return len(word)

    def _in_string(self, text: str, at: int, out: list[str], *, final: bool) -> int:
        if text[at] == '"':
            out.append('"')
            self._after_value()
            return 1
        return self._piece(text, at, out, final=final)

    def _piece(self, text: str, at: int, out: list[str], *, final: bool) -> int:
        """Some of a string's inside; the characters used, 0 where an escape isn't whole yet."""
        plain = _PLAIN.match(text, at)
        if plain is not None:
            out.append(self._plain(plain[0]))
            return len(plain[0])
        if text[at] != "\\":
            out.append(escaped(text[at]))
            return 1
        following = text[at + 1 : at + 2]
        if following in _SIMPLE_ESCAPES and following:
            out.append("\\" + following)
            return 2
        if following == "u":
            return self._unicode_escape(text, at, out, final=final)
        if not following and not final:
            return 0
        out.append("\\\\")  # a backslash that stands for itself
        return 1

    def _unicode_escape(self, text: str, at: int, out: list[str], *, final: bool) -> int:
        """An escape of one character; both halves of one that has two."""
        digits = text[at + 2 : at + 6]
        if _HEX.fullmatch(digits) is None:
            if not final and len(digits) < 4 and all(c in "0123456789abcdefABCDEF" for c in digits):
                return 0
            out.append("\\\\")
            return 1
        code = int(digits, 16)
        if not 0xD800 <= code < 0xE000:
            out.append(text[at : at + 6])
            return 6
        second = text[at + 6 : at + 12]
        if code < 0xDC00 and not final and len(second) < 6 and "\\u".startswith(second[:2]):
            return 0
        low = code < 0xDC00 and second.startswith("\\u") and _HEX.fullmatch(second[2:]) is not None
        if low and 0xDC00 <= int(second[2:], 16) < 0xE000:
            out.append(text[at : at + 12])
            return 12
        out.append(_REPLACEMENT)
        return 6

    def _give(self, token: str, out: list[str]) -> None:
        out.append(self._waiting + token)
        self._waiting = ""

    def _end(self, character: str, out: list[str]) -> int:
        if not self._closers or character != self._closers[-1]:
            return self._break()
        self._waiting = ""  # a comma too many
        self._closers.pop()
        out.append(character)
        self._after_value()
        return 1

    def _after_value(self) -> None:
        self._expects = _Expects.COMMA_OR_END
        self.done = not self._closers

    def _break(self) -> int:
        self.broken = True
        return 0
