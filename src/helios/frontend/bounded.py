"""The operators and methods that a chat template may use, with bounded results.

Templates use few of the methods that Python offers, and some of the rest make gigabytes out of one
number. What isn't listed here doesn't exist for a template; what is, spends its work beforehand.
Filters are `filters`'; `sandbox` is the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from helios.frontend import origin_formats, origins
from helios.frontend.budget import (
    INTEGER_LIMIT_BITS,
    BudgetExceeded,
    spend_reading,
    spend_traversal,
    spend_value,
)

WIDTH_LIMIT: Final = 4096  # of padding, precision and indentation
PIECE_WORK: Final = 64  # what a short string costs beside its characters
_WHITESPACE: Final = " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029"

_TEXTS: Final = (str, origins.Written)

Operation = Callable[..., Any]

# ------------------------------------------------------------------ operators


def guard_operator(operator: str, left: Any, right: Any) -> None:
    """Spends what `left operator right` costs. Raises BudgetExceeded."""
    if operator == "**":
        grows = isinstance(left, int) and isinstance(right, int)
        _check_integer(left.bit_length() * abs(right) if grows else 0)
    elif operator == "*":
        if isinstance(left, int) and isinstance(right, int):
            _check_integer(left.bit_length() + right.bit_length())
        for value, count in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(count, int):
                spend_value(len(value) * max(count, 0), items=not isinstance(value, str))
    elif operator == "+":
        if isinstance(left, str) and isinstance(right, str):
            spend_value(len(left) + len(right))
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            spend_value(len(left) + len(right), items=True)
    elif operator == "%" and isinstance(left, str):
        spend_value(percent_size(left, right))


def text_operator(operator: str, left: Any, right: Any) -> str | None:
    """`left operator right` with its origins, after `guard_operator`; None where that isn't plain
    work on text."""
    if type(left) not in _TEXTS:
        left, right = right, left
        if operator != "*" or type(left) not in _TEXTS:
            return None
    if operator == "+" and type(right) in _TEXTS:
        return origins.added(left, right)
    if operator == "*" and isinstance(right, int):
        return origins.repeated(left, right)
    return origin_formats.percent(left, right) if operator == "%" else None


def _check_integer(bits: int) -> None:
    if bits > INTEGER_LIMIT_BITS:
        raise BudgetExceeded(f"makes a value larger than {INTEGER_LIMIT_BITS} bits")


def percent_size(form: str, values: Any) -> int:
    """At least the length of `form % values`."""
    conversions = re.findall(r"%(?:\([^)]*\))?([^A-Za-z%]*)", form)
    return (
        len(form) + len(conversions) * spend_traversal(values) + sum(map(check_width, conversions))
    )


def check_width(specification: str) -> int:
    """The sum of the numbers in a format specification, width and precision among them."""
    if "*" in specification:
        raise BudgetExceeded("takes a width from its values")
    numbers = re.findall(r"\d+", specification)
    if any(len(number) > len(str(WIDTH_LIMIT)) or int(number) > WIDTH_LIMIT for number in numbers):
        raise BudgetExceeded(f"asks for a width over {WIDTH_LIMIT}")
    return sum(map(int, numbers))


def check_specification(specification: str, value: Any) -> None:
    """Spends what `format(value, specification)` costs. Raises BudgetExceeded."""
    spend_value(check_width(specification) + spend_traversal(value))


def concatenated(*values: Any) -> str:
    """The operator `~`."""
    spend_traversal(*values)
    return origins.joined("", values)


def concatenate(pieces: Iterable[str]) -> str:
    """What Jinja joins a block's pieces with."""
    held = list(pieces)
    spend_value(sum(map(len, held)))
    return origins.joined("", held)


def printed(value: Any) -> Any:
    """A value that will be turned into text or compared."""
    if isinstance(value, list | tuple | Mapping):
        spend_traversal(value)
    return value


def shown(value: Any) -> Any:
    """A value that will be printed."""
    return origins.shown(printed(value))


def sliced(value: Any) -> Any:
    """A slice that was just made."""
    spend_reading(value)
    return value


# ------------------------------------------------------------------ methods


def _padded(text: str, width: int, *_: Any) -> int:
    check_width(str(width))
    return max(len(text), width)


def replaced_size(text: str, old: str, new: str, count: int = -1) -> int:
    """The length of `text.replace(old, new, count)`, or more."""
    found = text.count(old)
    return len(text) + (found if count < 0 else min(found, count)) * len(new)


def joined_size(separator: str, parts: list[Any]) -> int:
    """The length of the parts' texts with the separator between them, or more; pays for them."""
    return spend_traversal(parts) + len(separator) * len(parts)


def _tabs_expanded(text: str, tabsize: int = 8) -> int:
    check_width(str(tabsize))
    return len(text) + text.count("\t") * tabsize


def _split(text: str, sep: str | None = None, maxsplit: int = -1) -> int:
    found = text.count(sep) if sep else sum(map(text.count, _WHITESPACE))
    return PIECE_WORK * ((found if maxsplit < 0 else min(found, maxsplit)) + 1)


def _lines(text: str, keepends: bool = False) -> int:
    return PIECE_WORK * (sum(map(text.count, _WHITESPACE)) + 1)


def _same(text: str, *_: Any, **__: Any) -> int:
    return len(text)


# The length of a method's result, or more; at most that of the text where it says `_same`. Three
# times, since one character may become three in another case.
_STRING_METHODS: Final[Mapping[str, Callable[..., int]]] = {
    **dict.fromkeys(
        ["capitalize", "casefold", "lower", "swapcase", "title", "upper"],
        lambda text: 3 * len(text),
    ),
    **dict.fromkeys(
        [
            "count",
            "endswith",
            "find",
            "index",
            "isalnum",
            "isalpha",
            "isascii",
            "isdecimal",
            "isdigit",
            "isidentifier",
            "islower",
            "isnumeric",
            "isprintable",
            "isspace",
            "istitle",
            "isupper",
            "lstrip",
            "partition",
            "removeprefix",
            "removesuffix",
            "rfind",
            "rindex",
            "rpartition",
            "rstrip",
            "startswith",
            "strip",
        ],
        _same,
    ),
    **dict.fromkeys(["center", "ljust", "rjust", "zfill"], _padded),
    **dict.fromkeys(["split", "rsplit"], _split),
    "expandtabs": _tabs_expanded,
    "join": joined_size,
    "replace": replaced_size,
    "splitlines": _lines,
}
# Methods of everything else; attributes that can't be called are not concerned.
OTHER_METHODS: Final = frozenset({"copy", "count", "get", "index", "items", "keys", "values"})
_BUILTIN: Final = (int, float, complex, bytes, range, list, tuple, dict, set, frozenset, type)


def string_method(text: str, name: str) -> Operation | None:
    """A method of a string that spends before it runs; None if templates have no such method."""
    size = _STRING_METHODS.get(name)
    if size is None:
        return None

    def call(*values: Any, **named: Any) -> Any:
        if name == "join" and len(values) == 1:
            values = (list(values[0]),)
        spend_reading(*values, *named.values())
        spend_value(size(text, *values, **named))
        return origins.method(text, name, *values, **named)

    return call


def is_allowed_method(owner: Any, name: str, value: Any) -> bool:
    """Whether a template may call this attribute of a value that isn't a string."""
    return not (callable(value) and isinstance(owner, _BUILTIN)) or name in OTHER_METHODS
