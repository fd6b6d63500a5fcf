"""Launches of a cuda target's programs as CUDA kernels: which, before any is compiled.

Each launch of the catalogue goes through the lowering of its kernel, or several consecutive ones
through a fusion. Layers and programs repeat launches, so equal ones are lowered once. `nodes` makes
nodes of the result once its requests are compiled. Imports no compiler: lowerings are given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from helios.errors import ContractError
from helios.schema import execution_pb2 as pb
from ignition.capture.liveness import RecordedLaunch
from ignition.capture.program import ProgramRecorder
from ignition.kernels.cuda.launches import (
    Architecture,
    CatalogueLaunch,
    CudaKernel,
    Fusion,
    Lowering,
    NeighbouringLaunch,
)


@dataclass(frozen=True)
class Kernels:
    """How launches become kernels: a lowering by kernel name, and fusions, of which the first that
    fits is taken. `retained` scratch is read after a program."""

    lowerings: Mapping[str, Lowering]
    fusions: Sequence[Fusion]
    architecture: Architecture
    retained: Collection[str] = ()


@dataclass(frozen=True)
class LoweredLaunches:
    """Consecutive launches `[first, last]` of a program and the kernels that do their work."""

    first: int
    last: int
    kernels: tuple[CudaKernel, ...]


def lower(
    program: ProgramRecorder, kernels: Kernels, cache: dict[object, object]
) -> list[LoweredLaunches]:
    """The kernels of a program's launches. `cache` is shared by the programs of one recording.

    Raises ContractError naming program, launch and kernel where there is no lowering of it, or
    where its lowering can't do what the launch asks for.
    """
    launches = program.launches
    lowered: list[LoweredLaunches] = []
    at = 0
    written: set[int] = set()
    while at < len(launches):
        before = launches[lowered[-1].first : at] if lowered else []
        written |= _written(before)
        first = _described(
            launches[at], kernels.architecture, settled(launches[at], before), written
        )
        last, found = _fused(launches, at, first, kernels, written) or (at, None)
        if found is None:
            found = _single(
                first, launches[at], kernels, cache, f"{program.message.name} launch {at}"
            )
        lowered.append(LoweredLaunches(at, last, found))
        at = last + 1
    return lowered


def settled(launch: RecordedLaunch, before: Sequence[RecordedLaunch]) -> frozenset[str]:
    """Operands that the launches right `before`, whose kernels all wait before they let another
    begin, don't write; none where no launch is before, because what stages inputs doesn't wait."""
    if not before:
        return frozenset()
    written = _written(before)
    return frozenset(
        operand for operand, place in _places(launch).items() if place[0] not in written
    )


def _written(launches: Sequence[RecordedLaunch]) -> set[int]:
    """The buffers that they write."""
    return {
        use.buffer.index
        for launch in launches
        for use in launch.uses
        if use is not None and "w" in use.effect
    }


def _single(
    described: CatalogueLaunch,
    launch: RecordedLaunch,
    kernels: Kernels,
    cache: dict[object, object],
    where: str,
) -> tuple[CudaKernel, ...]:
    operands = (described.operands, described.settled, described.selected)
    key = (launch.kernel.name, launch.integers, launch.floats, operands)
    known = cache.get(key)
    if known is None:
        lowering = kernels.lowerings.get(launch.kernel.name)
        if lowering is None:
            raise ContractError(
                f"the cuda target has no kernel for {launch.kernel.name}",
                where=where,
                remedy="Prepare the model for another target",
            )
        known = cache[key] = tuple(lowering(described))
    assert isinstance(known, tuple)
    return known


def _fused(
    launches: Sequence[RecordedLaunch],
    at: int,
    first: CatalogueLaunch,
    kernels: Kernels,
    written: Set[int],
) -> tuple[int, tuple[CudaKernel, ...]] | None:
    """The last launch of what the first fitting fusion takes from `at` on, and its kernels.
    `written`: buffers that launches before it write."""
    for fusion in kernels.fusions:
        window = launches[at : at + len(fusion.kernels)]
        if tuple(launch.kernel.name for launch in window) != tuple(fusion.kernels):
            continue
        last = at + len(window) - 1
        unread = _unread(launches, at, last, kernels.retained)
        found = fusion.lower(
            [
                NeighbouringLaunch(
                    _described(launch, kernels.architecture, frozenset(), written)
                    if number
                    else first,
                    _places(launch),
                    unread,
                )
                for number, launch in enumerate(window)
            ]
        )
        if found is not None:
            return last, tuple(found)
    return None


def _described(
    launch: RecordedLaunch,
    architecture: Architecture,
    settled: frozenset[str],
    written: Set[int],
) -> CatalogueLaunch:
    spec, rows = launch.kernel, launch.uses[0]
    return CatalogueLaunch(
        spec.name,
        dict(zip(spec.integers, launch.integers, strict=True)),
        dict(zip(spec.floats, launch.floats, strict=True)),
        frozenset(_places(launch)),
        architecture,
        settled,
        rows is not None and rows.buffer.index in written,
    )


def _places(launch: RecordedLaunch) -> dict[str, tuple[int, int]]:
    """(buffer, first byte) of each operand that is there."""
    return {
        spec.name: (use.buffer.index, use.buffer.first_byte)
        for spec, use in zip(launch.kernel.operands, launch.uses, strict=True)
        if use is not None
    }


def _unread(
    launches: Sequence[RecordedLaunch], first: int, last: int, retained: Collection[str]
) -> frozenset[tuple[int, int]]:
    """Scratch that these launches write and nothing reads afterwards."""
    written = {
        (use.buffer.index, use.buffer.first_byte)
        for launch in launches[first : last + 1]
        for use in launch.uses
        if use is not None
        and "w" in use.effect
        and use.buffer.buffer_class == pb.BUFFER_CLASS_WORKSPACE
        and use.buffer.name not in retained
    }
    living = set()
    overwritten: set[int] = set()
    for launch in launches[last + 1 :]:
        effects = [use for use in launch.uses if use is not None]
        living |= {
            use.buffer.index
            for use in effects
            if "r" in use.effect and use.buffer.index not in overwritten
        }
        overwritten |= {use.buffer.index for use in effects if use.effect == "w"}
    return frozenset(place for place in written if place[0] not in living)
