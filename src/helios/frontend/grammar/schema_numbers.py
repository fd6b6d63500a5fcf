"""Numbers in JSON schemas: those that a grammar has exactly, and the bounds that it keeps to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from helios.frontend.grammar.schema_places import Path, refuse

_EXACT: Final = 1 << 53
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
# Keywords that put a schema's bounds together with another's.
_COMBINING: Final = ("$ref", "anyOf", "oneOf")


def exact_number(value: object, where: str, at: Path) -> int | float:
    """A number that a grammar has exactly, whole ones as integers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(where, at, "is no number")
    if not abs(value) <= _EXACT:  # neither is what is no number
        refuse(where, at, f"numbers beyond ±{_EXACT} aren't supported")
    return int(value) if value == int(value) else value


class Bounds:
    """The bounds of a whole schema's numbers. llguidance admits an open end that is a whole number
    where the other end is less than 1 away, so such pairs are refused."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._combined = False
        self._all: dict[str, set[float]] = {name: set() for name in _BOUNDS}

    def add(self, schema: Mapping[str, Any], at: Path) -> None:
        """A schema whose bounds are numbers."""
        own = {name: {schema[name]} for name in _BOUNDS if name in schema}
        for name, values in own.items():
            self._all[name] |= values
        combines = any(name in schema for name in _COMBINING)
        self._combined = self._combined or "allOf" in schema or (combines and bool(own))
        if schema.get("type") != "integer":
            self._check({**dict.fromkeys(_BOUNDS, frozenset()), **own}, at)

    def finish(self) -> None:
        """Checks bounds that may meet where schemas are put together."""
        if self._combined:
            self._check(self._all, ())

    def _check(self, bounds: Mapping[str, set[float] | frozenset[float]], at: Path) -> None:
        ends = bounds["maximum"] | bounds["exclusiveMaximum"]
        starts = bounds["minimum"] | bounds["exclusiveMinimum"]
        wrong = [
            f"exclusiveMinimum {end}"
            for end in bounds["exclusiveMinimum"]
            if end == int(end) and any(0 < other - end < 1 for other in ends)
        ] + [
            f"exclusiveMaximum {end}"
            for end in bounds["exclusiveMaximum"]
            if end == int(end) and any(0 < end - other < 1 for other in starts)
        ]
        if wrong:
            refuse(self._where, at, f"{wrong[0]} can't be enforced so close to the other bound")
