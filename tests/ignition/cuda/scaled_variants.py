"""Lowerings of projections by scaled codes with a tile that the number of rows wouldn't get."""

from __future__ import annotations

from unittest import mock

from ignition.kernels.cuda import scaled_tiles
from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.lowerings import LOWERINGS
from ignition.kernels.cuda.scaled_tiles import ScaledTile

VARIANTS = {
    "large": ScaledTile(128, 128, 8, 3),
    "medium": ScaledTile(64, 128, 4, 4),
    "apart": ScaledTile(64, 32, 4, 3, apart=True),
}


def _lowered(launch: CatalogueLaunch, variant: str) -> list[CudaKernel]:
    with mock.patch.object(scaled_tiles, "tile", return_value=VARIANTS[variant]):
        return list(LOWERINGS[launch.kernel](launch))


def large(launch: CatalogueLaunch) -> list[CudaKernel]:
    """Blocks of 128 × 128."""
    return _lowered(launch, "large")


def medium(launch: CatalogueLaunch) -> list[CudaKernel]:
    """Blocks of 64 outputs and 128 rows."""
    return _lowered(launch, "medium")


def apart(launch: CatalogueLaunch) -> list[CudaKernel]:
    """Blocks of 64 outputs and 32 rows, a CTA for each part."""
    return _lowered(launch, "apart")


def whole(launch: CatalogueLaunch) -> list[CudaKernel]:
    """A reduction that isn't cut into parts, which is another order."""
    with mock.patch.object(scaled_tiles, "parts", return_value=1):
        return list(LOWERINGS[launch.kernel](launch))
