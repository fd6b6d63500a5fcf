"""Memory of an interpreted launch, which knows what may be touched, how and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ALIGNMENT = 16
MARGIN = 64
POISON = 0xFF  # NaN in every float format


class PlacedArray:
    """A copy of an array at an address that is a multiple of 16 and of nothing larger."""

    def __init__(self, name: str, source: Array, *, writable: bool, weight: bool = False) -> None:
        self.name, self.writable, self.weight = name, writable, weight
        self._memory = np.full(source.nbytes + 2 * MARGIN, POISON, np.uint8)
        origin = self._memory.ctypes.data
        start = -(-origin // (2 * ALIGNMENT)) * 2 * ALIGNMENT + ALIGNMENT
        inside = self._memory[start - origin :][: source.nbytes]
        self.array = inside.view(source.dtype).reshape(source.shape)
        self.array[...] = source
        self.start, self.end = start, start + source.nbytes


@dataclass
class Ran:
    """What a kernel did: which arrays it wrote, and whether a program of it let the next launch
    begin before it had waited."""

    written: set[str] = field(default_factory=set)
    hasty: bool = False


@dataclass
class Memory:
    """All that the kernels of one launch may touch. `settled` may be read before the wait, unless
    the kernel before may still be writing it."""

    places: dict[str, PlacedArray] = field(default_factory=dict)
    waited: bool = True
    settled: frozenset[str] = frozenset()
    now: Ran = field(default_factory=Ran)
    before: Ran | None = None

    def place(self, name: str, array: Array, *, writable: bool, weight: bool = False) -> int:
        if name not in self.places:
            self.places[name] = PlacedArray(name, array, writable=writable, weight=weight)
        self.places[name].writable |= writable
        return self.places[name].start

    def check(self, pointers: Array, nbytes: int, mask: Array, *, writing: bool) -> None:
        """Raises unless every address is allowed now."""
        at = np.broadcast_to(pointers, np.broadcast_shapes(pointers.shape, mask.shape))[
            np.broadcast_to(mask, np.broadcast_shapes(pointers.shape, mask.shape))
        ]
        if not at.size:
            return
        if (at % np.uint64(nbytes)).any():
            raise AssertionError(f"an access of {nbytes} bytes isn't aligned to them")
        inside = np.zeros(at.shape, np.bool_)
        verb = "written" if writing else "read"
        for place in self.places.values():
            mine = (at >= np.uint64(place.start)) & (at + np.uint64(nbytes) <= np.uint64(place.end))
            if not mine.any():
                continue
            inside |= mine
            if writing and not place.writable:
                raise AssertionError(f"{place.name} is written, and the catalogue only reads it")
            if not self.waited and not place.weight:
                self._check_early(place.name, verb)
            if writing:
                self.now.written.add(place.name)
        if not inside.all():
            stray = int(at[~inside][0])
            nearest = min(
                self.places.values(), key=lambda p: min(abs(stray - p.start), abs(stray - p.end))
            )
            raise AssertionError(
                f"{verb} outside every operand, {stray - nearest.start} bytes after the start of"
                f" {nearest.name}, which has {nearest.end - nearest.start}"
            )

    def _check_early(self, name: str, verb: str) -> None:
        early = f"{name} is {verb} before gdc_wait"
        if verb == "written" or name not in self.settled:
            raise AssertionError(early)
        if self.before is None:
            raise AssertionError(f"{early}, and no launch of the fusion comes before")
        if name in self.before.written:
            raise AssertionError(f"{early}, and the launch before writes it")
        if self.before.hasty:
            raise AssertionError(f"{early}, and the launch before let go before it had waited")
