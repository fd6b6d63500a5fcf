"""The filters and tests that a chat template may use, with bounded results.

Those of Jinja that templates use, after their arguments were paid for; those whose result can be
much larger than what they are given look ahead. `sandbox` is the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Undefined
from jinja2.tests import TESTS

from helios.frontend.bounded import (
    PIECE_WORK,
    Operation,
    check_width,
    joined_size,
    percent_size,
    replaced_size,
)
from helios.frontend.budget import spend_reading, spend_traversal, spend_value
from helios.frontend.origin_formats import percent
from helios.frontend.origins import added, joined, kept, method, plain, replaced


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates expect it: no HTML escaping, non-ASCII kept, keys in order."""
    spend_traversal(value, separators)
    check_width(str(len(indent) if isinstance(indent, str) else indent or 0))
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    pieces = []
    for piece in encoder.iterencode(value):
        spend_value(len(piece) + PIECE_WORK)
        pieces.append(piece)
    return "".join(pieces)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
    columns = len(width) if isinstance(width, str) else width
    check_width(str(columns))
    spend_traversal(text)
    spend_value(len(str(text)) + (str(text).count("\n") + 2) * columns)
    return _indented(str(text), width if isinstance(width, str) else " " * width, first, blank)


def _indented(text: str, space: str, first: bool, blank: bool) -> str:
    """Each line after the first behind `space`; empty ones only with `blank`."""
    lines = method(added(text, "\n"), "splitlines")  # Jinja's own also ends the last line
    rest = [added(space, line) if line or blank else line for line in lines[1:]]
    found = joined("\n", [lines[0], *rest])
    return added(space, found) if first else found


def _join(context: Any, value: Any, d: str = "", attribute: Any = None) -> Any:
    parts = list(value)
    spend_value(joined_size(str(d), parts))
    if attribute is not None:
        parts = list(map(make_attrgetter(context.environment, attribute), parts))
    return joined(str(d), parts)


def _replace(context: Any, s: Any, old: Any, new: Any, count: int | None = None) -> Any:
    spend_traversal(s, old, new)
    spend_value(replaced_size(str(s), str(old), str(new), -1 if count is None else count))
    return replaced(str(s), str(old), str(new), -1 if count is None else count)


def _round(value: Any, precision: int = 0, method: Any = "common") -> Any:
    check_width(str(abs(precision)))
    return FILTERS["round"](value, precision, method)


def _sum(environment: Any, iterable: Any, attribute: Any = None, start: float = 0) -> Any:
    if not isinstance(start, int | float):
        raise TypeError("`sum` adds numbers")
    return FILTERS["sum"](environment, iterable, attribute, start)


def _format(value: Any, *values: Any, **named: Any) -> Any:
    spend_value(percent_size(str(value), named or values))
    if values and named:
        raise TypeError("`format` takes positional or named values, not both")
    return percent(str(value), named or values)


def _trim(value: Any, chars: str | None = None) -> str:
    spend_traversal(value)
    return str(method(str(value), "strip", chars))


def _cased(name: str) -> Operation:
    def change(value: Any) -> str:
        spend_traversal(value)
        text = str(value)
        return kept(text, FILTERS[name](plain(text)))

    return change


def _spending(operation: Any, spend: Callable[..., Any]) -> Operation:
    """The operation after its arguments were paid for; Jinja's marks on it are kept."""

    @wraps(operation)
    def call(*values: Any, **named: Any) -> Any:
        given = (*values, *named.values())
        spend(*(value for value in given if not isinstance(value, Undefined)))
        return operation(*values, **named)

    return call


def _marked(operation: Operation, like: str) -> Operation:
    """With Jinja's mark that says what a filter gets before its arguments."""
    mark = getattr(FILTERS[like], "jinja_pass_arg", None)
    if mark is not None:
        operation.jinja_pass_arg = mark  # type: ignore[attr-defined]
    return operation


# Those that take a value as it is, and those that turn it into text, compare or order it.
_SHALLOW: Final = [
    "abs",
    "count",
    "d",
    "default",
    "first",
    "float",
    "int",
    "items",
    "last",
    "length",
    "list",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "reverse",
    "safe",
    "select",
    "selectattr",
]
_DEEP: Final = [
    "dictsort",
    "e",
    "escape",
    "groupby",
    "sort",
    "string",
    "unique",
    "urlencode",
    "wordcount",
]

FILTERS_ALLOWED: Final[Mapping[str, Operation]] = {
    **{name: _spending(FILTERS[name], spend_reading) for name in _SHALLOW},
    **{name: _spending(FILTERS[name], spend_traversal) for name in _DEEP},
    "format": _marked(_format, "format"),
    "indent": _marked(_indent, "indent"),
    "join": _marked(_join, "join"),
    "replace": _marked(_replace, "replace"),
    "round": _marked(_round, "round"),
    "sum": _marked(_sum, "sum"),
    "tojson": tojson,
    "trim": _trim,
    **{name: _cased(name) for name in ("capitalize", "lower", "title", "upper")},
}
_COMPARING: Final = frozenset(
    [
        "!=",
        "<",
        "<=",
        "==",
        ">",
        ">=",
        "eq",
        "equalto",
        "ge",
        "greaterthan",
        "gt",
        "in",
        "le",
        "lessthan",
        "lt",
        "ne",
    ]
)
TESTS_ALLOWED: Final[Mapping[str, Any]] = {
    name: _spending(test, spend_traversal) if name in _COMPARING else test
    for name, test in TESTS.items()
}
