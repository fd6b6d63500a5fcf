"""What a JSON schema may cost, and which values in it can be kept to exactly.

llguidance's own limits count its steps, but not all of them: a text without a choice, a divisor, a
chain of references can each take minutes, gigabytes or the thread's stack. So they are bounded
here, before it sees them. The figures behind the limits are in `docs/structured-output.md`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from helios.frontend.grammar.schema_numbers import exact_number
from helios.frontend.grammar.schema_places import Path, path_of, refuse

DEPTH_LIMIT: Final = 64  # levels of objects and lists
# Levels of all definitions that references lead to, together: so deep can references be followed.
REACH_LIMIT: Final = 400
TEXT_LIMIT: Final = 8192  # characters of a name or a text that has to come as it is
PROPERTIES_LIMIT: Final = 2000  # in all of a schema
PATTERNS_LIMIT: Final = 40  # of names, in all of a schema; each is compared with each
VALUES_LIMIT: Final = 20_000  # in all enumerations, those inside of values too
# The states that divisors take: their sum, and what several of one number multiply to.
DIVISORS_LIMIT: Final = 50_000

_BAD_CHARACTER: Final = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f\ud800-\udfff]")


class Costs:
    """What is counted over a whole schema."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._properties = 0
        self._patterns = 0
        self._values = 0
        self._divisors: list[int] = []

    def properties(self, count: int, at: Path) -> None:
        """So many names of properties more."""
        self._properties += count
        if self._properties > PROPERTIES_LIMIT:
            refuse(self._where, at, f"it names more than {PROPERTIES_LIMIT} properties")

    def patterns(self, count: int, at: Path) -> None:
        """So many patterns of names more."""
        self._patterns += count
        if self._patterns > PATTERNS_LIMIT:
            refuse(self._where, at, f"it has more than {PATTERNS_LIMIT} patterns of names")

    def value(self, value: Any, at: Path) -> Any:
        """A value that an answer may have to be, as a grammar can have it exactly."""
        self._values += 1
        if self._values > VALUES_LIMIT:
            refuse(self._where, at, f"it lists more than {VALUES_LIMIT} values")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return exact_number(value, self._where, at)
        if isinstance(value, str):
            check_text(value, self._where, at)
            return value
        if isinstance(value, list):
            return [self.value(one, at) for one in value]
        for name in value:
            check_text(name, self._where, at)
        return {name: self.value(one, at) for name, one in value.items()}

    def multiple(self, divisor: int | float, at: Path) -> None:
        """A divisor more: its digits without the decimal point are how many states it takes."""
        digits = str(divisor).partition("e")[0].replace(".", "").rstrip("0")
        states = divisor if isinstance(divisor, int) else int(digits or 1)
        self._divisors.append(states)
        together = math.lcm(*set(self._divisors))
        if max(sum(self._divisors), together) > DIVISORS_LIMIT:
            refuse(self._where, at, f"divisors take more than {DIVISORS_LIMIT} states")


def check_reach(schema: Mapping[str, Any], where: str) -> None:
    """Refuses a schema that is nested too deep or leads through too many definitions."""
    references: set[str] = set()
    stack: list[tuple[object, Path]] = [(schema, ())]
    while stack:
        value, at = stack.pop()
        if len(at) > DEPTH_LIMIT:
            refuse(where, at[:3], f"it is nested more than {DEPTH_LIMIT} levels deep")
        if isinstance(value, Mapping):
            target = value.get("$ref")
            if isinstance(target, str):
                references.add(target)
            stack += [(one, (*at, str(key))) for key, one in value.items()]
        elif isinstance(value, list):
            stack += [(one, (*at, "")) for one in value]
    reach = sum(_levels(_found(schema, path_of(one))) for one in references)
    if reach > REACH_LIMIT:
        refuse(where, (), f"its references lead through {reach} levels, over {REACH_LIMIT}")


def _found(value: object, path: Sequence[str]) -> object:
    """The value at a place; None where there is none."""
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part[:9]) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _levels(value: object) -> int:
    if isinstance(value, Mapping):
        return 1 + max(map(_levels, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_levels, value), default=0)
    return 0


def check_text(text: str, where: str, at: Path) -> None:
    """Refuses a text that an answer can't have, or that is too long to be forced on one."""
    if len(text) > TEXT_LIMIT:
        refuse(where, at, f"a text has {len(text)} characters, over {TEXT_LIMIT}")
    found = _BAD_CHARACTER.search(text)
    if found is not None:
        refuse(where, at, f"the character U+{ord(found[0]):04X} isn't supported in texts")
