"""Places workspace tensors in one arena that every program shares.

Knows lifetimes and sizes, nothing of kernels. Two tensors may share bytes if no program has them
alive at the same launch; programs never run at the same time, so lifetimes in different programs
never clash. The recorder is the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ALIGNMENT_NBYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Interval:
    """Launches `first` to `last` (both included) of a program, between which a value must last."""

    program: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A workspace tensor: the bytes it takes and when they hold something that is read later."""

    name: str
    nbytes: int
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Byte offset of each tensor in the arena, by name, and the arena's size."""

    offsets: Mapping[str, int]
    arena_nbytes: int


def aligned(nbytes: int, alignment: int = ALIGNMENT_NBYTES) -> int:
    """`nbytes` rounded up to a multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment


def plan(tensors: Iterable[Tensor]) -> Plan:
    """Greedy best fit, largest tensor first; equal sizes in the order of their names.

    Each tensor goes into the smallest gap, between tensors alive at the same time, that holds it,
    else above them. So an offset is always zero or the end of another tensor, and the arena never
    grows beyond the sum of all sizes.
    """
    placed = _Placed()
    offsets: dict[str, int] = {}
    arena = 0
    for tensor in sorted(tensors, key=lambda t: (-t.nbytes, t.name)):
        nbytes = aligned(tensor.nbytes)
        offset = _best_fit(nbytes, placed.alive_with(tensor.intervals))
        offsets[tensor.name] = offset
        placed.add(tensor.intervals, offset, nbytes)
        arena = max(arena, offset + nbytes)
    return Plan(offsets, arena)


class _Placed:
    """Extents taken so far, by program, so that a look-up reads only the programs concerned."""

    def __init__(self) -> None:
        self._by_program: defaultdict[int, list[tuple[Interval, int, int]]] = defaultdict(list)

    def add(self, intervals: Sequence[Interval], offset: int, nbytes: int) -> None:
        for interval in intervals:
            self._by_program[interval.program].append((interval, offset, offset + nbytes))

    def alive_with(self, intervals: Sequence[Interval]) -> list[tuple[int, int]]:
        """Extents (start, end) that share a launch with one of `intervals`, ascending."""
        taken = {
            (start, end)
            for mine in intervals
            for other, start, end in self._by_program[mine.program]
            if mine.first <= other.last and other.first <= mine.last
        }
        return sorted(taken)


def _best_fit(nbytes: int, taken: Sequence[tuple[int, int]]) -> int:
    """Start of the smallest gap of at least `nbytes`; the end of everything if there is none."""
    best: tuple[int, int] | None = None
    top = 0
    for start, end in taken:
        gap = start - top
        if gap >= nbytes and (best is None or gap < best[0]):
            best = (gap, top)
        top = max(top, end)
    return top if best is None else best[1]
