"""Patterns as clients write them (ECMA 262's, which JSON schemas use), as llguidance reads them.

The two differ silently: in what `.`, `\\d` and `\\s` match, in what may stand in a class, in what
is an escape. So a pattern is read here and written anew; what has no counterpart is refused by
name. The length of the shortest match is counted on the way, since that is what a grammar may
force on an answer in one go.
"""

from __future__ import annotations

from typing import Final, NoReturn

from helios.dataclass import dataclass

# Characters of the shortest match, and so of the longest text without a choice.
SHORTEST_LIMIT: Final = 8192
_COUNT_DIGITS: Final = 9
_DEPTH_LIMIT: Final = 100

_WORD: Final = "0-9A-Za-z_"
_SPACE: Final = (
    r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}"
    r"\u{3000}\u{FEFF}"
)
_SETS: Final = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": f"[{_WORD}]",
    "W": f"[^{_WORD}]",
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}]",
}
_ANY: Final = r"[^\n\r\u{2028}\u{2029}]"
_EVERYTHING: Final = r"(?s:.)"
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_HEX_DIGITS: Final = {"x": 2, "u": 4}


class UnsupportedPatternError(ValueError):
    """A pattern that no grammar can be made of; the text says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as llguidance reads it, and the number of characters of its shortest match."""

    regex: str
    shortest: int


def searched(pattern: str) -> Pattern:
    """A pattern that is looked for anywhere in a text. Raises UnsupportedPatternError."""
    return _Reader(pattern, whole=False).read()


def whole(pattern: str) -> Pattern:
    """A pattern that a text has to match from its beginning to its end, so that `^` and `$` there
    say nothing new. Raises UnsupportedPatternError."""
    return _Reader(pattern, whole=True).read()


@dataclass(slots=True)
class _Group:
    """An open group: the shortest of its finished alternatives, and of the one being read."""

    best: int | None = None
    current: int = 0

    def close(self) -> int:
        """The shortest of all."""
        return self.current if self.best is None else min(self.best, self.current)


class _Reader:
    def __init__(self, pattern: str, *, whole: bool) -> None:
        self._text = pattern
        self._whole = whole
        self._at = 0
        self._groups = [_Group()]
        self._out: list[str] = []
        # The shortest match of what a count would repeat; None where nothing may be repeated.
        self._atom: int | None = None

    def read(self) -> Pattern:
        while self._at < len(self._text):
            self._step(self._next())
        if len(self._groups) > 1:
            self._refuse("a group isn't closed")
        shortest = self._groups[0].close()
        if shortest > SHORTEST_LIMIT:
            raise UnsupportedPatternError(
                f"its shortest match has {shortest} characters, over {SHORTEST_LIMIT}"
            )
        return Pattern("".join(self._out), shortest)

    # ------------------------------------------------------------ characters

    def _next(self) -> str:
        character = self._text[self._at]
        self._at += 1
        return character

    def _take(self, expected: str) -> bool:
        """Reads this text if it is next."""
        found = self._text.startswith(expected, self._at)
        self._at += len(expected) if found else 0
        return found

    def _refuse(self, why: str) -> NoReturn:
        raise UnsupportedPatternError(f"{why} (character {self._at} of the pattern)")

    def _step(self, character: str) -> None:
        group = self._groups[-1]
        match character:
            case "|":
                group.best, group.current = group.close(), 0
                self._out.append("|")
                self._atom = None
            case "(":
                self._open()
            case ")":
                self._close()
            case "^" | "$":
                self._anchor(character)
            case "*" | "+" | "?":
                self._repeat(0 if character != "+" else 1, character)
            case "{":
                self._braces()
            case ".":
                self._put(_ANY)
            case "[":
                self._put(self._class())
            case "\\":
                self._put(self._escape())
            case _:
                self._put(literal(ord(character)))

    def _put(self, regex: str, shortest: int = 1) -> None:
        self._out.append(regex)
        self._groups[-1].current += shortest
        self._atom = shortest

    def _open(self) -> None:
        if self._take("?"):
            if self._take("<") and not self._text.startswith(("=", "!"), self._at):
                end = self._text.find(">", self._at)
                name = self._text[self._at : end] if end > self._at else ""
                if not name.isidentifier():
                    self._refuse("a group's name is none")
                self._at = end + 1
            elif not self._take(":"):
                self._refuse("lookarounds and flags aren't supported")
        if len(self._groups) > _DEPTH_LIMIT:
            self._refuse(f"groups are nested more than {_DEPTH_LIMIT} deep")
        self._groups.append(_Group())
        self._out.append("(?:")
        self._atom = None

    def _close(self) -> None:
        if len(self._groups) == 1:
            self._refuse("a parenthesis closes no group")
        shortest = self._groups.pop().close()
        self._put(")", shortest)

    def _anchor(self, character: str) -> None:
        self._atom = None
        if not self._whole:
            self._out.append(character)
            return
        begins = not self._out or self._out[-1] == "|"
        ends = self._at == len(self._text) or self._text[self._at] == "|"
        if len(self._groups) > 1 or not (begins if character == "^" else ends):
            self._refuse(f"{character} is supported at an end of the pattern only")

    def _braces(self) -> None:
        """A count between braces; other braces are characters."""
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at : max(end, self._at)].partition(",")
        if not _is_count(least) or not (_is_count(most) or not most):
            self._put(r"\{")
            return
        if max(len(least), len(most)) > _COUNT_DIGITS:
            self._refuse("a count is too large")
        self._at = end + 1
        if most and int(most) < int(least):
            self._refuse("a count's bounds are the wrong way round")
        self._repeat(int(least), f"{{{int(least)}{comma}{int(most) if most else ''}}}")

    def _repeat(self, least: int, regex: str) -> None:
        if self._atom is None:
            self._refuse("nothing stands before a count")
        self._groups[-1].current += (least - 1) * self._atom
        self._out.append(regex)
        self._take("?")  # a lazy count matches the same texts
        self._atom = None

    # ------------------------------------------------------------ escapes and classes

    def _escape(self) -> str:
        found = self._escaped()
        return found if isinstance(found, str) else literal(found)

    def _escaped(self) -> int | str:
        """What stands behind a backslash: a character's number, or a set as a class."""
        if self._at == len(self._text):
            self._refuse("it ends in a backslash")
        character = self._next()
        if character in _SETS:
            return _SETS[character]
        if character in "pP":
            end = self._text.find("}", self._at)
            name = self._text[self._at : end] if end > 0 and self._take("{") else ""
            if not name or not all(c.isalnum() or c in "_=" for c in name):
                self._refuse("a property's name is none")
            self._at = end + 1
            return f"\\{character}{{{name}}}"
        if character in _CONTROLS:
            if character == "0" and self._text[self._at : self._at + 1].isdigit():
                self._refuse("octal escapes aren't supported")
            return _CONTROLS[character]
        if character in _HEX_DIGITS:
            return self._hexadecimal(character)
        letter = self._text[self._at : self._at + 1]
        if character == "c" and letter.isascii() and letter.isalpha():
            self._at += 1
            return ord(letter) % 32
        if character.isalnum() or character == "_":
            self._refuse(f"\\{character} isn't supported")
        return ord(character)

    def _hexadecimal(self, kind: str) -> int:
        if kind == "u" and self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end > 0 else ""
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + _HEX_DIGITS[kind]]
            self._at += len(digits)
            if len(digits) < _HEX_DIGITS[kind]:
                self._refuse("an escape is too short")
        if not digits or len(digits) > 6 or any(d not in "0123456789abcdefABCDEF" for d in digits):
            self._refuse("an escape has no hexadecimal number")
        number = int(digits, 16)
        if 0xD800 <= number < 0xDC00 and self._take("\\u"):
            second = self._hexadecimal("u")
            if not 0xDC00 <= second < 0xE000:
                self._refuse("an escape is half of a surrogate pair")
            return 0x10000 + ((number - 0xD800) << 10) + (second - 0xDC00)
        if number > 0x10FFFF or (0xD800 <= number < 0xDC00):
            self._refuse("an escape is no character")
        return number

    def _class(self) -> str:
        negative = self._take("^")
        parts: list[str] = []
        while True:
            if self._at == len(self._text):
                self._refuse("a class isn't closed")
            if self._take("]"):
                break
            first = self._member()
            if isinstance(first, str):
                parts.append(first)
                continue
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                if self._at == len(self._text):
                    self._refuse("a class isn't closed")
                last = self._member()
                if isinstance(last, str) or last < first:
                    self._refuse("a class has a range that is none")
                parts.append(f"{literal(first)}-{literal(last)}")
            else:
                parts.append(literal(first))
        if not parts:
            return _EVERYTHING if negative else self._refuse("an empty class matches nothing")
        return f"[{'^' if negative else ''}{''.join(parts)}]"

    def _member(self) -> int | str:
        character = self._next()
        if character != "\\":
            return ord(character)
        if self._take("b"):
            return 8
        return self._escaped()


def literal(number: int) -> str:
    """A character, wherever in a regular expression it stands. Raises UnsupportedPatternError for
    half of a surrogate pair, and for what is no character."""
    if 0xD800 <= number < 0xE000 or number > 0x10FFFF:
        raise UnsupportedPatternError("half of a surrogate pair, or more, is no character")
    character = chr(number)
    if character.isalnum() or number > 0x7F:
        return character
    return f"\\x{number:02X}"


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()
