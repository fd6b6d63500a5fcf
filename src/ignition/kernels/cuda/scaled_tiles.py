"""Which blocks a projection by scaled codes takes; measured on `sm_90`.

Only `parts` enters the order of its sums, so it belongs to the matrix alone. `docs/cuda.md` has the
figures. Imports no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

# CTAs below which a smaller tile is faster, as in `tiles`.
_ENOUGH_CTAS: Final = 80
# Inputs of a block of scales, and outputs of the least tile.
_BLOCK: Final = 128
_LEAST_OUTPUTS: Final = 64
# Blocks that a part has at least, and where there are CTAs enough without parts; and CTAs of few
# rows beyond which parts cost more than they save, where they are short and where they are long.
_FEWEST_BLOCKS: Final = 3
_LONG_PART: Final = 8
_MOST_CTAS: Final = 400
_MOST_LONG_CTAS: Final = 512
# Rows up to which parts have CTAs of their own.
_MOST_APART: Final = 128
# How long a tile of 128 rows takes where one of 256 takes 1.
_HALF_TILE: Final = 0.55


@dataclass(frozen=True)
class ScaledTile:
    """Blocks and options of one variant of `project_scaled`; `apart`: a CTA for each part."""

    outputs: int
    rows: int
    warps: int
    stages: int
    apart: bool = False

    def count(self, capacity: int, outputs: int) -> int:
        """Tiles over `capacity` rows of a matrix with `outputs`."""
        return -(-capacity // self.rows) * -(-outputs // self.outputs)


def parts(outputs: int, width: int) -> int:
    """Parts that a matrix's reduction is cut into, in every program: a block of codes takes half a
    microsecond from one product to the next, so that few rows of few outputs wait for their chains,
    not for their bytes."""
    tiles, blocks = -(-outputs // _LEAST_OUTPUTS), -(-width // _BLOCK)
    fewest = _LONG_PART if tiles >= _ENOUGH_CTAS else _FEWEST_BLOCKS
    for count in (8, 4, 2):
        most = _MOST_LONG_CTAS if blocks >= _LONG_PART * count else _MOST_CTAS
        if blocks >= fewest * count and tiles * count <= most:
            return -(-blocks // -(-blocks // count))  # none of them is empty
    return 1


def tile(rows: int, outputs: int, width: int, processors: int, *, fp8: bool) -> ScaledTile:
    """The variant for up to `rows` rows, on a GPU of `processors`."""
    count = parts(outputs, width)
    ctas = count * -(-outputs // _LEAST_OUTPUTS)
    if rows <= 64:
        return replace(_few(rows, ctas, fp8=fp8), apart=count > 1)
    large = _large(rows, outputs, processors, fp8=fp8, whole=count == 1)
    for wide in (large, ScaledTile(64, 128, 4, 4)):
        if wide.count(rows, outputs) >= _ENOUGH_CTAS:
            return wide
    if rows <= _MOST_APART and count > 1:
        return ScaledTile(128 if ctas >= 2 * _ENOUGH_CTAS else 64, 64, 4, 4, apart=True)
    return ScaledTile(64, 64, 4, 4)


def _few(rows: int, ctas: int, *, fp8: bool) -> ScaledTile:
    """For up to 64 rows, where the least tiles make so many CTAs."""
    stages = 4 if fp8 else 3  # of scaled sums there are more copies than of products
    if rows <= 16:
        return ScaledTile(64, 16, 4, stages)
    if ctas > _MOST_CTAS:
        return ScaledTile(128, 32 if rows <= 32 else 64, 4, 4)
    return ScaledTile(64, 32, 4, stages) if rows <= 32 else ScaledTile(64, 64, 4, 4)


def _large(rows: int, outputs: int, processors: int, *, fp8: bool, whole: bool) -> ScaledTile:
    """For many rows: what fits in registers, which is one accumulator more of scaled sums, and one
    of parts."""
    medium = ScaledTile(128, 128, 8, 3 if rows > _MOST_APART else 4)
    if not whole:
        return medium
    if not fp8:
        return medium if rows <= _MOST_APART else ScaledTile(128, 64, 4, 4)
    high = ScaledTile(128, 256, 8, 2)

    def waves(tile: ScaledTile) -> int:
        return -(-tile.count(rows, outputs) // processors)

    return high if waves(high) <= _HALF_TILE * waves(medium) else medium
