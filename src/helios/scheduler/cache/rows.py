"""The row pool: which snapshots' state rows are free. It doesn't know who holds a row.

A row is where one snapshot's state lies on the device; rows count snapshots from 0, as
`LaneWork.snapshot_row` and `restore_row` do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NO_ROW: Final = -1


class RowPool:
    """Rows 0 … rows − 1, each free or taken."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._free = list(range(rows - 1, -1, -1))

    @property
    def free(self) -> int:
        """Rows that nobody holds."""
        return len(self._free)

    def can_take(self) -> bool:
        """Whether a row is free."""
        return bool(self._free)

    def take(self) -> int:
        """A free row, taken; ask `can_take` first."""
        assert self._free, "a row was taken without asking can_take"
        return self._free.pop()

    def put(self, row: int) -> None:
        """Makes a taken row free."""
        self._free.append(row)

    def check_books(self, held: Iterable[int]) -> None:
        """Asserts that free and `held` rows are all rows, each once."""
        every = sorted([*self._free, *held])
        assert every == list(range(self.rows)), f"row books don't balance: {every}"
