"""What a matcher's error means: a limit, a dead end, or a bug.

llguidance tells them apart by their text alone, so this is the one place that reads it. What it
doesn't know is a bug, and its request's failure is the server's.
"""

from __future__ import annotations

import re
from typing import Final

from helios.dataclass import dataclass
from helios.frontend.grammar.faults import GrammarFault


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request can't go on: whose fault that is, if it is the request's, and what is wrong."""

    fault: GrammarFault
    what: str


_LIMITS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(r"row has \d+ items; max is (\d+)"),
        "its grammar has over {} open rules at once here, which is the limit",
    ),
    (
        re.compile(r"Too many items \(limit (\d+)"),
        "finding out what may come next takes over {} steps of its grammar's rules, which is the"
        " limit",
    ),
    (
        re.compile(r"too many states: \d+ >= (\d+)"),
        "its grammar's expressions have over {} states, which is the limit",
    ),
    (
        re.compile(r"too many expressions constructed()"),
        "its grammar's expressions take more steps for a token than the limit",
    ),
)
_DEAD_END: Final = "NoExtension"


def problem_of(error: str, tokens: int) -> Problem:
    """What a matcher's error means after so many tokens of a response."""
    for pattern, what in _LIMITS:
        found = pattern.search(error)
        if found is not None:
            return Problem(GrammarFault.LIMIT, f"after {tokens} tokens {what.format(found[1])}")
    if error.startswith(_DEAD_END):
        return Problem(
            GrammarFault.DEAD_END, f"after {tokens} tokens its grammar allows nothing, nor an end"
        )
    return Problem(
        GrammarFault.NONE, f"its grammar can't be followed any further: {first_line(error)}"
    )


def first_line(error: str) -> str:
    """The beginning of a matcher's error; the rest of it shows the grammar."""
    return (error.strip().splitlines() or ["unknown"])[0][:300]
