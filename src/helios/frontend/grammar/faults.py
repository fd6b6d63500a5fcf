"""What ends a response that its grammar can't be followed through: seen while it is generated, and
nobody's fault but the request's.

The worker knows the kind of it, whoever asked knows the field; `grammar_error` puts them together
for the server and the in-process engine.
"""

from __future__ import annotations

from enum import IntEnum

from helios.errors import RequestError


class GrammarFault(IntEnum):
    """Why a request can't go on. `LIMIT`: its grammar needs more than a limit on grammars allows;
    `DEAD_END`: its grammar allows no token; `EXCLUDED`: `allowed_token_ids` has none of those that
    its grammar allows."""

    NONE = 0
    LIMIT = 1
    DEAD_END = 2
    EXCLUDED = 3


class GrammarLimitError(RequestError):
    """A grammar has reached a limit while it was followed."""


class GrammarDeadEndError(RequestError):
    """Nothing may follow what has been generated."""


def grammar_error(fault: GrammarFault, what: str, where: str) -> RequestError:
    """The error of a request whose grammar came by the field `where`."""
    if fault is GrammarFault.EXCLUDED:
        return GrammarDeadEndError(
            f"{what}; the grammar is that of {where}",
            where="allowed_token_ids",
            remedy="Leave it out, or allow every token that the answer may need",
        )
    if fault is GrammarFault.LIMIT:
        return GrammarLimitError(
            what, where=where, remedy="Send a simpler grammar, or ask for a shorter answer"
        )
    return GrammarDeadEndError(
        what, where=where, remedy="Send a grammar that every beginning of a text can be ended by"
    )
