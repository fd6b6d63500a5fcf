"""A run's arrays as they lie in the workspace, and what may have changed there.

Everything that is no array, the margins and scratch, is filled before a run; margins, and what the
catalogue only reads, must hold the same bytes after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import BY_NAME
from helios.runtime.manifest import (
    Buffer,
    BufferClass,
    CudaRowCount,
    CudaTensorMap,
    Operand,
    Program,
)
from tests.gpu.trials import POISON, Run
from tests.native.launches import Array

# Past the last array's end.
MARGIN_NBYTES: Final = 512
Bytes = NDArray[np.uint8]


class StaleBundleError(Exception):
    """The bundle was made of other trials than these."""


@dataclass(frozen=True)
class Place:
    """Bytes of the workspace."""

    name: str
    begin: int
    end: int

    @property
    def where(self) -> slice:
        """Of them."""
        return slice(self.begin, self.end)


@dataclass(frozen=True)
class Placed:
    """The arrays of a run by their ids, those of them that may change, and scratch."""

    arrays: Mapping[int, tuple[Array, Place]]
    written: frozenset[int]
    scratch: tuple[Place, ...]
    nbytes: int

    @property
    def places(self) -> list[Place]:
        """Of all arrays and of scratch."""
        return [*(place for _, place in self.arrays.values()), *self.scratch]

    def image(self, filling: Bytes | None) -> Bytes:
        """The workspace before the run; with poison where there is no `filling`."""
        content = np.full(self.nbytes, POISON, np.uint8)
        if filling is not None:
            content[:] = np.resize(filling, self.nbytes)
        for array, place in self.arrays.values():
            content[place.where] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        return content

    def results(self, after: Bytes) -> dict[int, Array]:
        """Every array as the run left it, by its id."""
        return {
            number: after[place.where].view(array.dtype).reshape(array.shape)
            for number, (array, place) in self.arrays.items()
        }

    def strayed(self, before: Bytes, after: Bytes) -> str:
        """What was written that mustn't be, or nothing."""
        expected = before.copy()
        for number, (_, place) in self.arrays.items():
            if number in self.written:
                expected[place.where] = after[place.where]
        for place in self.scratch:
            expected[place.where] = after[place.where]
        if np.array_equal(expected, after):
            return ""
        at = np.flatnonzero(expected != after)
        first = int(at[0])
        near = min(self.places, key=lambda p: max(p.begin - first, first - p.end + 1, 0))
        return (
            f"{at.size} bytes changed that nothing may write, the first {first - near.begin} bytes"
            f" after the beginning of {near.name}, which has {near.end - near.begin}"
        )


def place(run: Run, program: Program, buffers: tuple[Buffer, ...]) -> Placed:
    """Where the program of a run has its arrays. Raises StaleBundleError where it is another's."""
    arrays: dict[int, tuple[Array, Place]] = {}
    written: set[int] = set()
    if len(program.launches) != len(run.cases):
        raise StaleBundleError(f"{program.name}: {len(program.launches)} launches")
    for case, launch in zip(run.cases, program.launches, strict=True):
        spec = BY_NAME[case.kernel]
        integers = tuple(int(case.integers[name]) for name in spec.integers)
        if launch.kernel.name != case.kernel or launch.integers != integers:
            raise StaleBundleError(f"{program.name}: {launch.kernel.name} {launch.integers}")
        for operand, bound in zip(spec.operands, launch.operands, strict=True):
            array = case.operands.get(operand.name)
            nbytes = None if bound is None else buffers[bound.buffer].nbytes
            if (None if array is None else array.nbytes) != nbytes:
                raise StaleBundleError(f"{program.name}: {operand.name} has {nbytes} bytes")
            if array is None or bound is None:
                continue
            buffer = buffers[bound.buffer]
            arrays[id(array)] = (array, _place(buffer))
            if "w" in operand.access:
                written.add(id(array))
    known = {place.name for _, place in arrays.values()}
    scratch = {
        buffer.name: _place(buffer)
        for buffer in map(buffers.__getitem__, _used(program))
        if buffer.buffer_class is BufferClass.WORKSPACE and buffer.name not in known
    }
    places = [*(place for _, place in arrays.values()), *scratch.values()]
    nbytes = max(place.end for place in places) + MARGIN_NBYTES
    return Placed(arrays, frozenset(written), tuple(scratch.values()), nbytes)


def _place(buffer: Buffer) -> Place:
    return Place(buffer.name, buffer.offset, buffer.offset + buffer.nbytes)


def _used(program: Program) -> set[int]:
    """Buffers that nodes name."""
    used = set()
    for launch in program.launches:
        for node in launch.nodes:
            for argument in node.arguments:
                if isinstance(argument, CudaTensorMap | CudaRowCount):
                    used.add(argument.buffer.buffer)
                elif isinstance(argument, Operand):
                    used.add(argument.buffer)
    return used
