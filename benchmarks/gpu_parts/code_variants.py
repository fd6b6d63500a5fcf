"""The matrices of 8-bit codes that are measured, and the tiles that are tried for each.

Known on both machines: the one that compiles and the one with the GPU. Imports no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_parts.geometries import GEOMETRIES
from ignition.kernels.cuda.scaled_tiles import ScaledTile

ROWS: Final = (1, 8, 16, 32, 64, 128, 512, 2048, 8192)
HEAD_ROWS: Final = 128

# Outputs and rows of a tile, warps, stages.
_FEW: Final = (
    *((64, 16, 4, 3), (64, 16, 4, 4), (128, 16, 4, 4), (128, 16, 4, 6), (128, 16, 8, 6)),
    *((64, 32, 4, 3), (64, 32, 4, 4), (128, 32, 4, 4), (64, 64, 4, 4), (128, 64, 4, 4)),
    *((64, 128, 4, 4), (128, 128, 8, 4)),
)
_MANY: Final = (
    *((64, 64, 4, 4), (128, 64, 4, 4), (128, 64, 8, 4), (64, 128, 4, 4), (128, 128, 8, 3)),
    *((128, 128, 8, 4), (128, 256, 8, 2), (256, 64, 8, 3)),
)
# Parts that are tried for a matrix.
_PARTS: Final = {
    ("135M", "qkv"): (1,),
    ("135M", "gate_up"): (1,),
    ("135M", "down"): (2, 4),
    ("0.6B", "gate_up"): (1, 2),
    ("0.6B", "down"): (4, 8),
    ("8B", "qkv"): (2, 4),
    ("8B", "output"): (4, 8),
    ("8B", "gate_up"): (1, 2),
    ("8B", "down"): (4, 8, 16),
    ("8B", "head"): (1,),
}


@dataclass(frozen=True)
class CodeMatrix:
    """A matrix [outputs, width] of codes, `fp8` or int8, and what becomes of its products."""

    model: str
    role: str
    outputs: int
    width: int
    epilogue: int
    fp8: bool
    parts: int

    @property
    def label(self) -> str:
        """For tables."""
        parts = f" in {self.parts} parts" if self.parts > 1 else ""
        return f"{self.model} {self.role} {'fp8' if self.fp8 else 'int8'}{parts}"

    @property
    def blocks(self) -> int:
        """Scales of an output."""
        return 1 if self.fp8 else -(-self.width // 128)

    @property
    def nbytes(self) -> int:
        """Codes and scales."""
        return self.outputs * (self.width + 4 * self.blocks)


def matrices(models: list[str]) -> list[CodeMatrix]:
    """What is measured of these models: all roles with int8, the largest with fp8."""
    found = []
    for geometry in GEOMETRIES:
        for (model, role), parts in _PARTS.items():
            if model not in models or model != geometry.name:
                continue
            shape = geometry.projections[role]
            for fp8 in (False, True) if role in ("gate_up", "down") else (False,):
                found += [CodeMatrix(model, role, *shape, fp8, count) for count in parts]
    return found


def tiles(matrix: CodeMatrix) -> list[ScaledTile]:
    """The tiles that are tried."""
    few = [ScaledTile(*values, apart=True) for values in _FEW]
    return few if matrix.role == "head" else few + [ScaledTile(*values) for values in _MANY]


def is_sensible(tile: ScaledTile, rows: int) -> bool:
    """Whether a tile may win at a number of rows."""
    if tile.apart:
        return rows <= min(4 * tile.rows, 128) and tile.rows <= max(64, 2 * rows)
    return rows >= 128 and tile.rows <= max(64, 2 * rows)
