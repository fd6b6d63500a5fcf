"""Lowerings of a projection and its rotation in one launch, one for each tile that real shapes have
and tests are too small for."""

from __future__ import annotations

from ignition.kernels.cuda import tiles
from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.lowerings.rotated_projection import project_and_rotate

LARGE = tiles.Tile("project_many", True, 128, 256, 64, 8, 3, flatten=True)
MEDIUM = tiles.Tile("project_many", True, 128, 128, 64, 8, 4, flatten=True)


def large(projection: CatalogueLaunch, rope: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    return (project_and_rotate(projection, rope, LARGE),)


def medium(projection: CatalogueLaunch, rope: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    return (project_and_rotate(projection, rope, MEDIUM),)
