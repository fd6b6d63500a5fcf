"""Which CUDA kernels a test's launches become, whoever runs them then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ignition.kernels.cuda.launches import (
    ARCHITECTURES,
    CatalogueLaunch,
    NeighbouringLaunch,
)

if TYPE_CHECKING:
    from ignition.kernels.cuda.launches import CudaKernel

# In place of a lowering's name: the launches go through the first fusion that fits.
FUSION = "fusion"


class Launch(NamedTuple):
    """A launch of the catalogue; operands by the names of arrays."""

    kernel: str
    integers: Mapping[str, int]
    floats: Mapping[str, float]
    operands: Mapping[str, str]


def kernels_of(
    lowering: str, launches: Sequence[Launch], names: Sequence[str], unread: Collection[str]
) -> Sequence[CudaKernel]:
    """What `lowering` (`module:function`, a kernel's name or FUSION) makes of launches over arrays
    of these names; nothing reads the arrays `unread` afterwards."""
    described = [
        CatalogueLaunch(
            launch.kernel, launch.integers, launch.floats, frozenset(launch.operands),
            ARCHITECTURES["sm_90"],
        )
        for launch in launches
    ]  # fmt: skip
    if lowering == FUSION:
        return _fused(launches, described, names, unread)
    module, _, function = lowering.partition(":")
    if function:
        made: Sequence[CudaKernel] = getattr(import_module(module), function)(*described)
        return made
    lowerings = import_module("ignition.kernels.cuda.lowerings").LOWERINGS
    return tuple(lowerings[lowering](*described))


def _fused(
    launches: Sequence[Launch],
    described: Sequence[CatalogueLaunch],
    names: Sequence[str],
    unread: Collection[str],
) -> Sequence[CudaKernel]:
    places = {name: (number, 0) for number, name in enumerate(names)}
    unread_places = frozenset(places[name] for name in unread)
    neighbours = [
        NeighbouringLaunch(
            one, {operand: places[name] for operand, name in launch.operands.items()}, unread_places
        )
        for launch, one in zip(launches, described, strict=True)
    ]
    for fusion in import_module("ignition.kernels.cuda.lowerings").FUSIONS:
        if tuple(fusion.kernels) == tuple(launch.kernel for launch in launches):
            found: Sequence[CudaKernel] | None = fusion.lower(neighbours)
            if found is not None:
                return found
    raise AssertionError("no fusion fits")
