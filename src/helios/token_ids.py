"""Token ids, as whole lists: whether they are such, and within a model's bounds.

A prompt has thousands, and each pass over it in Python is time that its first token comes later.
Each check here is one pass of compiled code; only what fails it is looked at one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
import numpy as np

# Fewer are compared in less time than numpy is asked.
_FEW: Final = 512


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


def packed(tokens: Sequence[int], limit: int) -> array[int] | None:
    """The ids as 32-bit integers, which are copied into a frame's staging at once; None where one
    isn't in [0, limit). There must be some."""
    try:
        ids = array("i", tokens)
    except (OverflowError, TypeError):
        return None
    if len(ids) < _FEW:
        least, most = min(tokens), max(tokens)
    else:
        read = np.frombuffer(ids, np.intc)
        least, most = int(read.min()), int(read.max())
    return ids if least >= 0 and most < limit else None


@lru_cache(maxsize=16)
def _ids_below(limit: int) -> Any:
    """The type of lists of such ids."""
    return list[Annotated[int, msgspec.Meta(ge=0, lt=limit)]]
