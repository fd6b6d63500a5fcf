"""Token ids, as whole lists: whether they are such, and within a model's bounds.

A prompt has thousands, and each pass over it in Python is time that its first token comes later.
Each check here is one pass of compiled code; only what fails it is looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec


def whole_numbers(values: list[Any]) -> list[int] | None:
    """The values as a new list, if all of them are integers, and no booleans; None otherwise, and
    for kinds of integers that aren't Python's."""
    try:
        return msgspec.convert(values, list[int])
    except msgspec.ValidationError:
        return None


def first_outside(tokens: Sequence[int], limit: int) -> int | None:
    """The first id that isn't in [0, limit), if there is one."""
    try:
        msgspec.convert(tokens, _ids_below(limit))
    except msgspec.ValidationError:
        return next((token for token in tokens if not 0 <= token < limit), None)
    return None


@lru_cache(maxsize=16)
def _ids_below(limit: int) -> Any:
    """The type of lists of such ids."""
    return list[Annotated[int, msgspec.Meta(ge=0, lt=limit)]]
