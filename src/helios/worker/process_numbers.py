"""Which HTTP process a request belongs to: a number in the high bits of its id.

The first process has 0, so that its ids count from 1. Each process that is started gets a number
that none had before, one that replaces a dead one too: its ids can't meet those of the dead one's
requests, which may still be ending.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

FIRST_PROCESS: Final = 0

_SHIFT: Final = 40


def request_ids(process: int) -> Iterator[int]:
    """The ids of a process's requests, one after the other."""
    return itertools.count((process << _SHIFT) + 1)


def process_of(request_id: int) -> int:
    """The number of the process that gave a request its id."""
    return request_id >> _SHIFT
