"""Which CUDA kernels a test's launches become, whoever runs them then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from helios.kernels.catalogue import BY_NAME
from ignition.kernels.cuda.launches import (
    ARCHITECTURES,
    At,
    CatalogueLaunch,
    NeighbouringLaunch,
    RowsOf,
    TensorMap,
)

if TYPE_CHECKING:
    from ignition.kernels.cuda.launches import CudaKernel

# In place of a lowering's name: the launches go through the first fusion that fits.
FUSION = "fusion"
# The same: each goes through its own lowering, which knows what the launch before it leaves alone.
IN_TURN = "in turn"


class Launch(NamedTuple):
    """A launch of the catalogue; operands by the names of arrays."""

    kernel: str
    integers: Mapping[str, int]
    floats: Mapping[str, float]
    operands: Mapping[str, str]


def kernels_of(
    lowering: str, launches: Sequence[Launch], names: Sequence[str], unread: Collection[str]
) -> Sequence[CudaKernel]:
    """What `lowering` (`module:function`, a kernel's name, FUSION or IN_TURN) makes of launches
    over arrays of these names; nothing reads the arrays `unread` afterwards."""
    described = [
        CatalogueLaunch(
            launch.kernel, launch.integers, launch.floats, frozenset(launch.operands),
            ARCHITECTURES["sm_90"],
        )
        for launch in launches
    ]  # fmt: skip
    if lowering == FUSION:
        return _fused(launches, described, names, unread)
    if lowering == IN_TURN:
        return _in_turn(launches, described)
    module, _, function = lowering.partition(":")
    if function:
        made: Sequence[CudaKernel] = getattr(import_module(module), function)(*described)
        return made
    lowerings = import_module("ignition.kernels.cuda.lowerings").LOWERINGS
    return tuple(lowerings[lowering](*described))


def _in_turn(launches: Sequence[Launch], described: Sequence[CatalogueLaunch]) -> list[CudaKernel]:
    lowerings = import_module("ignition.kernels.cuda.lowerings").LOWERINGS
    kernels: list[CudaKernel] = []
    for number, (launch, one) in enumerate(zip(launches, described, strict=True)):
        settled = frozenset[str]()
        if number:
            before = launches[number - 1]
            written = {
                before.operands[spec.name]
                for spec in BY_NAME[before.kernel].operands
                if "w" in spec.access and spec.name in before.operands
            }
            settled = frozenset(o for o, name in launch.operands.items() if name not in written)
        kernels += (
            replace(
                kernel,
                arguments={
                    name: replace(value, launch=number)
                    if isinstance(value, At | TensorMap | RowsOf)
                    else value
                    for name, value in kernel.arguments.items()
                },
            )
            for kernel in lowerings[launch.kernel](replace(one, settled=settled))
        )
    return kernels


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
