"""Which blocks a projection by scaled codes takes; none of it enters the order of its sums.

Imports no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# CTAs below which a smaller tile is faster, as in `tiles`.
_ENOUGH_CTAS: Final = 80


@dataclass(frozen=True)
class ScaledTile:
    """Blocks and options of one variant of `project_scaled`."""

    outputs: int
    rows: int
    warps: int
    stages: int

    def count(self, capacity: int, outputs: int) -> int:
        """CTAs over `capacity` rows of a matrix with `outputs`."""
        return -(-capacity // self.rows) * -(-outputs // self.outputs)


# By the rows that they are for: copies of weights fill what memory a multiprocessor has, in two
# CTAs or three.
_FEW: Final = (ScaledTile(64, 16, 4, 6), ScaledTile(64, 32, 4, 6), ScaledTile(64, 64, 4, 4))
_MANY: Final = (ScaledTile(128, 128, 8, 4), ScaledTile(64, 128, 4, 4))


def tile(rows: int, outputs: int) -> ScaledTile:
    """The variant for up to `rows` rows."""
    for narrow in _FEW:
        if rows <= narrow.rows:
            return narrow
    for wide in _MANY:
        if wide.count(rows, outputs) >= _ENOUGH_CTAS:
            return wide
    return _FEW[-1]
