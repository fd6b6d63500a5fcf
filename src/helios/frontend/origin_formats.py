"""Formatted text that keeps origins: `%` and `str.format`, piece by piece.

Both give exactly what Python gives; where the pieces can't be told apart, all of the text has the
least trusted origin of what it was made of.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from helios.frontend.origins import Written, by, joined, least, plain

_CONVERSION: Final = re.compile(r"%(?:\([^()]*\))?[-#0 +]*\d*(?:\.\d+)?[hlL]?[a-zA-Z%]")


def percent(form: str, values: Any) -> str:
    """`form % values`."""
    found: str = str.__mod__(plain(form), values)
    given = values if isinstance(values, tuple | dict) else (values,)
    if not _any_written(form, given):
        return found
    return _checked(found, lambda: _percent_pieces(form, given), (form, given))


def _percent_pieces(form: str, given: tuple[Any, ...] | dict[str, Any]) -> Iterator[str]:
    rest = iter(given) if isinstance(given, tuple) else None
    last = 0
    for match in _CONVERSION.finditer(form):
        yield form[last : match.start()]
        last = match.end()
        conversion = plain(match[0])
        if conversion == "%%":
            yield by(least(form[match.start() : last]), "%")
            continue
        if rest is None:
            assert isinstance(given, dict)
            name = conversion[2 : conversion.index(")")]
            value, made = given[name], conversion % given
        else:
            value = next(rest)
            made = conversion % (value,)
        yield value if isinstance(value, str) and conversion == "%s" else by(least(value), made)
    yield form[last:]


def formatted(
    form: str, formatter: string.Formatter, values: Sequence[Any], named: Mapping[str, Any]
) -> str:
    """`form.format(*values, **named)`, by this formatter."""
    found = formatter.vformat(plain(form), values, named)
    given = (*values, *named.values())
    if not _any_written(form, given):
        return found
    pieces = _format_pieces(form, formatter, values, named)
    return _checked(found, lambda: pieces, (form, given))


def _format_pieces(
    form: str, formatter: string.Formatter, values: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[str]:
    number = 0
    origin = least(form)
    for literal, field, specification, conversion in formatter.parse(plain(form)):
        yield by(origin, literal)
        if field is None:
            continue
        if field[:1] in ("", ".", "["):
            field, number = f"{number}{field}", number + 1
        if not specification and not conversion:
            value, _ = formatter.get_field(field, values, named)
            if isinstance(value, str):
                yield value
                continue
        text = f"{{{field}{'!' + conversion if conversion else ''}:{specification or ''}}}"
        yield formatter.vformat(text, values, named)


def _any_written(form: str, given: tuple[Any, ...] | dict[str, Any]) -> bool:
    values = given.values() if isinstance(given, dict) else given
    return any(isinstance(value, Written) for value in (form, *values))


def _checked(found: str, pieces: Callable[[], Iterator[str]], parts: tuple[str, Any]) -> str:
    """The pieces, if they are the text that was found."""
    try:
        made = joined("", pieces())
    except (ValueError, LookupError, TypeError, StopIteration, RuntimeError):
        made = ""
    if made == found:
        return made
    form, given = parts
    values = given.values() if isinstance(given, dict) else given
    return by(least(form, *values), found)
