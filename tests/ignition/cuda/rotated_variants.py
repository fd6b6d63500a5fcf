"""Lowerings of a projection and its rotation in one launch, one for each tile that real shapes have
and tests are too small for."""

from __future__ import annotations

from ignition.kernels.cuda import tiles
from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.lowerings.rotated_projection import project_and_rotate

TILES = {
    "large": tiles.Tile("project_many", True, 128, 256, 64, 8, 3, flatten=True),
    "medium": tiles.Tile("project_many", True, 128, 128, 64, 8, 4, flatten=True),
    "small": tiles.Tile("project_many", True, 64, 128, 64, 4, 4),
}


def large(projection: CatalogueLaunch, rope: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    return (project_and_rotate(projection, rope, TILES["large"]),)


def medium(projection: CatalogueLaunch, rope: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    return (project_and_rotate(projection, rope, TILES["medium"]),)


def small(projection: CatalogueLaunch, rope: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    return (project_and_rotate(projection, rope, TILES["small"]),)
