"""Acceptance: the operator repeats the signed publisher namespace, exactly, to use a core.

A signature proves who made a core; acceptance records that the operator trusts that publisher and
takes its licence terms. `opened_core` is the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.errors import CoreError


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was accepted, for the record."""

    namespace: str
    licence_terms: str
    public_key: bytes


def authorize(
    accept: str, *, namespace: str, licence_terms: str, public_key: bytes, where: str
) -> Acceptance:
    """Raises CoreError unless `accept` is the namespace, code point by code point."""
    if accept != namespace:
        raise CoreError(
            f"is published by {namespace!r}, but {accept!r} was accepted",
            where=where,
            remedy=f"If you trust this publisher and take its terms, accept {namespace!r}",
        )
    return Acceptance(namespace, licence_terms, public_key)
