"""Where the characters of a prompt come from, kept through all that a template does with text.

A chat template cuts, joins and rewrites a client's text; afterwards only the characters that the
template wrote itself may form markers. `Written` is text that knows the origin of each character.
Plain strings are the client's: an operation that doesn't know origins makes text less trusted,
never more. `sandbox`, `bounded` and `filters` work on text through the functions here; `markers`
reads the result. Formatting is `origin_formats`'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, SupportsIndex


class Origin(IntEnum):
    """Who wrote a character, the least trusted first. ANSWER is the content of an assistant's
    message: output of the model, given back by the client."""

    CLIENT = 0
    ANSWER = 1
    TEMPLATE = 2


class Written(str):
    """Text with the origin of each character, one byte for each in `origins`."""

    __slots__ = ("origins",)
    origins: bytes

    def __new__(cls, text: str, origins: bytes) -> Written:
        """As many origins as characters."""
        made = super().__new__(cls, text)
        assert len(text) == len(origins)
        made.origins = origins
        return made

    def __str__(self) -> str:
        """Itself: printing keeps origins."""
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        """A character or a slice."""
        if isinstance(key, slice):
            return written(super().__getitem__(key), self.origins[key])
        index = key.__index__()
        return written(super().__getitem__(index), bytes([self.origins[index]]))

    def __iter__(self) -> Iterator[str]:
        """The characters."""
        for character, origin in zip(super().__iter__(), self.origins, strict=True):
            yield written(character, bytes([origin]))


def written(text: str, origins: bytes) -> str:
    """A text with these origins; a plain string where all of it is the client's."""
    return Written(text, origins) if origins.strip(b"\0") else text


def by(origin: Origin, text: str) -> str:
    """A text that comes from one origin."""
    return written(text, bytes([origin]) * len(text))


def plain(text: str) -> str:
    """The text alone."""
    return str.__str__(text)


def origins_of(text: str) -> bytes:
    """The origin of each character."""
    return text.origins if isinstance(text, Written) else bytes(len(text))


def least(*values: Any) -> Origin:
    """The least trusted origin among the values. Numbers, truth values and nothing can spell no
    marker by themselves."""
    lowest = Origin.TEMPLATE
    for value in values:
        if isinstance(value, str):
            lowest = min(lowest, Origin(min(origins_of(value), default=Origin.TEMPLATE)))
        elif not (value is None or isinstance(value, int | float)):
            return Origin.CLIENT
    return lowest


def shown(value: Any) -> Any:
    """A value as it is printed: numbers and the like become text of the template."""
    if value is None or isinstance(value, int | float):
        return by(Origin.TEMPLATE, str(value))
    return value


def joined(separator: str, parts: Iterable[Any]) -> str:
    """`separator.join(parts)`, of printed parts."""
    texts = [str(shown(part)) for part in parts]
    if not any(isinstance(text, Written) for text in (separator, *texts)):
        return separator.join(texts)
    return written(
        str.join(plain(separator), texts), origins_of(separator).join(map(origins_of, texts))
    )


def added(left: str, right: str) -> str:
    """`left + right`."""
    return joined("", (left, right))


def repeated(text: str, count: int) -> str:
    """`text * count`."""
    return written(str.__mul__(text, count), origins_of(text) * count)


def _stripped(text: str, name: str, *values: Any) -> str:
    found = getattr(str, name)(text, *values)
    start = 0 if name == "rstrip" else len(text) - len(str.lstrip(text, *values))
    return written(found, origins_of(text)[start : start + len(found)])


def _placed(text: str, pieces: Iterable[str], gap: int) -> Iterator[str]:
    """Pieces of the text, in order, with `gap` characters or white space between them."""
    origins, cursor = origins_of(text), 0
    for piece in pieces:
        start = str.find(text, piece, cursor)
        yield written(piece, origins[start : start + len(piece)])
        cursor = start + len(piece) + gap


def _split(text: str, name: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    pieces = getattr(str, name)(text, sep, maxsplit)
    return list(_placed(text, pieces, len(sep) if sep else 0))


def _parted(text: str, name: str, *values: Any, **named: Any) -> Any:
    pieces = getattr(str, name)(text, *values, **named)
    return type(pieces)(_placed(text, pieces, 0))


def replaced(text: str, old: str, new: str, count: SupportsIndex = -1) -> str:
    """`text.replace(old, new, count)`."""
    if not old:
        return by(least(text, new), str.replace(text, old, plain(new), count))
    return joined(new, _split(text, "split", old, count.__index__()))


def _removed(text: str, name: str, affix: str) -> str:
    found = getattr(str, name)(text, affix)
    start = len(text) - len(found) if name == "removeprefix" else 0
    return written(found, origins_of(text)[start : start + len(found)])


def kept(text: str, found: str) -> str:
    """What became of a text character by character."""
    if len(found) == len(text):
        return written(found, origins_of(text))
    return by(least(text), found)


def _cased(text: str, name: str) -> str:
    return kept(text, getattr(str, name)(text))


_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(["strip", "lstrip", "rstrip"], _stripped),
    **dict.fromkeys(["split", "rsplit"], _split),
    **dict.fromkeys(["splitlines", "partition", "rpartition"], _parted),
    **dict.fromkeys(["removeprefix", "removesuffix"], _removed),
    **dict.fromkeys(["capitalize", "casefold", "lower", "swapcase", "title", "upper"], _cased),
}


def method(text: str, name: str, *values: Any, **named: Any) -> Any:
    """What a method of a string gives. Where text is made in another way than by cutting, joining
    and replacing, all of it has the least trusted origin of what it was made of."""
    if name == "join":
        return joined(text, *values)
    if name == "replace":
        return replaced(text, *values, **named)
    special = _METHODS.get(name)
    if special is not None and isinstance(text, Written):
        return special(text, name, *values, **named)
    found = getattr(str, name)(text, *values, **named)
    if isinstance(found, str) and isinstance(text, Written):
        return by(least(text, *values, *named.values()), found)
    return found
