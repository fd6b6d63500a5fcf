"""Which blocks projections and norms take, by shape and number of rows; measured on `sm_90`.

Only `parts` enters the order in which products are added, so it belongs to the matrix alone; a
tile may be any, and whichever is chosen the bits are the same. `docs/cuda.md` has the figures.
Imports no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

# CTAs below which a smaller tile is faster: three fifths of the 132 multiprocessors of an H200.
_ENOUGH_CTAS: Final = 80
# Parts of a matrix are whole blocks of this many inputs.
_NARROWEST: Final = 64
# Elements of a matrix below which its time is latency.
_SMALL_MATRIX: Final = 1 << 21
_HALF_OF_SHARED_MEMORY: Final = 112 * 1024
# Of `project_in_groups`: rows that its measurement began with, products below which its beginning
# and end take longer than what they save, outputs and inputs one of which a matrix has as many of,
# and elements of a matrix from which it is slower in a whole prompt, though not by itself.
_FEWEST_ROWS: Final = 256
_FEWEST_PRODUCTS: Final = 3_000_000_000
_FEWEST_ELEMENTS: Final = 1024
_LARGE_MATRIX: Final = 1 << 23
# How long a tile of 64 rows takes where one of 128 takes 1; the end of a launch, which nothing
# passes beside, in inputs of a tile of 128 rows, half for 64; and rows up to which that decides.
_LOW_TILE: Final = 0.55
_LAUNCH_END: Final = 500
_MOST_ROWS_OF_LOW_TILES: Final = 2048
# Rows from which projection and rotation in one launch were measured.
_FEWEST_ROTATED: Final = 512
# Elements of all rows' keys up to which attention had better rotate them.
_ROTATED_ELEMENTS: Final = 8 * 1024


@dataclass(frozen=True)
class Tile:
    """Blocks and options of one variant of `project_few`, `project_many` or `project_in_groups`."""

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


@dataclass(frozen=True)
class NarrowTile:
    """Blocks and options of one variant of `project_narrow`; `ask` in bytes of a row of weights."""

    rows: int
    outputs: int
    width: int
    warps: int
    stages: int
    rows_first: bool = False
    ask: int = 0
    early: bool = True

    def grid(self, capacity: int, outputs: int) -> tuple[int, int, int]:
        """CTAs over `capacity` rows of a matrix with `outputs`."""
        return -(-outputs // self.outputs), -(-capacity // self.rows), 1


def norm_warps(rows: int, padded: int) -> int:
    """Warps of a row's norm, for up to `rows` rows of a padded width: where rows are many, few of
    them leave room for many rows at once."""
    if rows > 128 and padded <= 4096:
        return 1 if padded <= 1024 else 2
    return 4 if padded <= 4096 else 8


def parts(outputs: int, width: int) -> int:
    """Parts that a matrix's reduction is cut into, in every program.

    One, but for a long reduction into few outputs: there, with few rows, its chain of dependent
    products takes longer than its bytes. More of them gain little there and cost prompts a tenth.
    """
    return 4 if outputs <= 1024 and width >= 3072 and width % (4 * _NARROWEST) == 0 else 1


def _several(block: int, part: int) -> int:
    """A block of which a part has more than one: a loop of one step is no loop, and the compiler
    then begins the products' sum with what is added after it."""
    while block >= part and block > 16:
        block //= 2
    return block


def narrow(rows: int, outputs: int, width: int) -> NarrowTile | None:
    """The variant of `project_narrow` for up to `rows` rows, None where another kernel is faster:
    many rows, or a matrix whose bytes take longer than anything else."""
    if rows > 128 or outputs * width >= _SMALL_MATRIX:
        return None
    count = parts(outputs, width)
    rows_block = next(block for block in (8, 16, 32, 64) if rows <= block or block == 64)
    if rows_block == 64:
        outputs_block = 32 if outputs <= 1024 else 64
    else:
        outputs_block = 16 if outputs <= 1024 else 32 if outputs <= 4096 else 64
    block = 128 if outputs_block == 16 and width // count % 128 == 0 else 64
    block = _several(block, width // count)
    # Half of a multiprocessor's memory, so that the next launch finds room beside this one.
    stage_nbytes = 2 * count * block * (outputs_block + rows_block)
    return NarrowTile(
        rows=rows_block,
        outputs=outputs_block,
        width=block,
        warps=4,
        rows_first=rows_block == 64,
        ask=2 * width,
        stages=max(2, min(4, _HALF_OF_SHARED_MEMORY // stage_nbytes)),
    )


def rotation_inside(heads: Mapping[str, int]) -> bool:
    """Whether attention rotates its rows itself, by the integers of `attention_f16`."""
    rotated = heads["capacity"] * heads["kv_heads"] * heads["head_dim"]
    return rotated <= _ROTATED_ELEMENTS


def tile(rows: int, outputs: int, width: int, *, f32: bool) -> Tile:
    """The variant for up to `rows` rows; `f32` where the epilogue writes or adds f32."""
    chosen = _tile(rows, outputs, width, f32=f32)
    return replace(chosen, width=_several(chosen.width, width // parts(outputs, width)))


def in_groups(rows: int, outputs: int, width: int, processors: int) -> Tile | None:
    """The variant of `project_in_groups` for up to `rows` rows, None where another kernel is faster
    or this one can't: it has whole matrices alone, and copies of 16 bytes."""
    high = Tile("project_in_groups", True, 128, 128, 64, 4, 6, flatten=True)
    low = replace(high, rows=64, stages=8)
    tiles_n = -(-outputs // high.outputs)
    if (
        parts(outputs, width) > 1
        or outputs % 8
        or width % 8
        or rows < _FEWEST_ROWS
        or rows * outputs * width < _FEWEST_PRODUCTS
        or max(outputs, width) < _FEWEST_ELEMENTS
        or outputs * width >= _LARGE_MATRIX
        or -(-rows // low.rows) * tiles_n < _ENOUGH_CTAS
    ):
        return None

    def waves(tile: Tile) -> int:
        return -(-(-(-rows // tile.rows) * tiles_n) // processors)

    of_high = waves(high) * width + _LAUNCH_END
    of_low = waves(low) * _LOW_TILE * width + _LAUNCH_END / 2
    return low if rows <= _MOST_ROWS_OF_LOW_TILES and of_low < of_high else high


def rotated(rows: int, outputs: int, width: int, head: int, processors: int) -> Tile | None:
    """The variant of `project_and_rotate` for up to `rows` rows and heads of that width, None where
    projection and rotation apart are as fast, or weren't measured: few rows, small tiles, other
    kernels than `project_many`."""
    if rows < _FEWEST_ROTATED or parts(outputs, width) > 1:
        return None
    # What it writes is as short as bf16.
    chosen = tile(rows, outputs, width, f32=False)
    if (
        chosen.rows_first
        and chosen.rows == 128
        and chosen.outputs % head == 0
        and in_groups(rows, outputs, width, processors) is None
    ):
        # A fourth stage of the large tile's takes longer than it saves; whichever tile it is, the
        # next one's loads run while heads are rotated.
        return replace(chosen, stages=3 if chosen.outputs == 256 else 4, flatten=True)
    return None


def together(rows: int) -> int:
    """Row tiles that pass over the weights together, for up to `rows` rows."""
    return 16 if rows >= 4096 else 8


def _tile(rows: int, outputs: int, width: int, *, f32: bool) -> Tile:
    cut = parts(outputs, width) > 1
    # Copies through tensor maps begin later and then run faster: not worth it for short rows.
    if width < 1024 or cut:
        few = _few(rows, outputs, width, cut)
        if few is not None:
            return few
    elif rows <= 32:
        return Tile("project_many", False, 16 if rows <= 16 else 32, 64, 128, 4, 8)
    wide = 128 if width // parts(outputs, width) % 128 == 0 or not cut else 64
    large = Tile("project_many", True, 128, 256, 64, 8, 3 if f32 else 4, flatten=True)
    medium = Tile("project_many", True, 128, 128, 64, 8, 4)
    small = Tile("project_many", True, 64, 128, 128, 4, 4)
    # Two accumulators, of a part and of the whole, are too much for the large tile.
    for candidate in (medium,) if cut else (large, medium, small):
        tiles = -(-rows // candidate.rows) * -(-outputs // candidate.outputs)
        if rows >= candidate.rows and tiles >= _ENOUGH_CTAS:
            return candidate
    return Tile("project_many", True, 64, 64, wide, 4, 6)


def _few(rows: int, outputs: int, width: int, cut: bool) -> Tile | None:
    """The variant of `project_few` for a number of rows, None where it is too large."""
    part = width // parts(outputs, width)
    block, stages = (128, {8: 10, 16: 9, 32: 8}) if part % 128 == 0 else (64, {8: 9, 16: 9, 32: 9})
    block = _several(block, part)
    for narrow, depth in stages.items():
        if rows <= narrow:
            return Tile("project_few", False, narrow, 64, block, 4, depth)
    if cut and rows <= 128:
        return Tile("project_few", False, 64, 64, block, 4, 6)
    if not cut and rows <= 128 and outputs <= 1024:
        return Tile("project_few", True, 64, 32, block, 4, 8)
    return None
