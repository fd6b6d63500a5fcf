"""Which blocks a projection takes, by its matrix and number of rows; measured on `sm_90`.

Only `parts` enters the order in which products are added, so it belongs to the matrix alone; a
tile may be any, and whichever is chosen the bits are the same. `docs/cuda.md` has the figures.
Imports no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# CTAs below which a smaller tile is faster: two thirds of an H200's 132 multiprocessors.
_ENOUGH_CTAS: Final = 90


@dataclass(frozen=True)
class Tile:
    """Blocks and options of one variant of `project_few` or `project_many`."""

    kernel: str
    rows_first: bool
    rows: int
    outputs: int
    width: int
    warps: int
    stages: int
    flatten: bool = False

    def grid(
        self, capacity: int, outputs: int, matrix_parts: int, processors: int
    ) -> tuple[int, int, int]:
        """CTAs over `capacity` rows of a matrix with `outputs`, on a GPU of `processors`."""
        tiles_m = -(-capacity // self.rows)
        tiles_n = -(-outputs // self.outputs)
        if self.kernel == "project_few":
            return tiles_n, matrix_parts, tiles_m
        tiles = tiles_m * tiles_n
        return (min(tiles, processors) if self.flatten else tiles), 1, 1


def parts(outputs: int, width: int) -> int:
    """Parts that a matrix's reduction is cut into, in every program.

    More than one where a long reduction would run in few CTAs: its chain of dependent products
    would take longer than its bytes.
    """
    if outputs > 1024 or width < 2048:
        return 1
    return 2


def tile(rows: int, outputs: int, width: int, *, f32: bool) -> Tile:
    """The variant for up to `rows` rows; `f32` where the epilogue writes or adds f32."""
    block = 128 if width % 128 == 0 else 64
    if rows <= 32:
        narrow = 8 if rows <= 8 else 16 if rows <= 16 else 32
        stages = {8: 10, 16: 9, 32: 8}[narrow] if block == 128 else 9
        return Tile("project_few", False, narrow, 64, block, 4, stages)
    cut = parts(outputs, width) > 1
    if rows <= (256 if cut else 64):
        if cut:
            return Tile("project_few", False, 64, 64, block, 4, 6)
        if outputs <= 4096:
            return Tile("project_few", True, 64, 32, block, 4, 8 if block == 128 else 9)
        return Tile("project_few", True, 64, 64, block, 4, 6)
    large = Tile("project_many", True, 128, 256, 64, 8, 3 if f32 else 4, flatten=True)
    medium = Tile("project_many", True, 128, 128, 64, 8, 4)
    small = Tile("project_many", True, 64, 128, 64, 4, 6)
    smallest = Tile("project_many", True, 64, 64, 64, 4, 6)
    # Two accumulators, of a part and of the whole, are too much for the large tile.
    for candidate in (medium,) if cut else (large, medium, small):
        if -(-rows // candidate.rows) * -(-outputs // candidate.outputs) >= _ENOUGH_CTAS:
            return candidate
    return smallest
