"""What a value source whose row is an array is made for, and what it then reads.

The destination's row decides about such a source, so it is made for one binding; what doesn't go
together is refused at the binding's place. The sources are in `array_sources` and
`sampling_sources`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Operation
from helios.contract.model import ValueBinding
from helios.dataclass import dataclass
from helios.runtime.checks.places import Place
from helios.runtime.rounds import LaneWork
from helios.runtime.value_bounds import Bounds
from helios.runtime.value_sources import Scope

Array = NDArray[Any]
# The row of a lane, or a row for each of its packed tokens, whose number is given. Raises
# ValueError for a lane that lacks it or whose values don't fit.
Row = Callable[[LaneWork, int], Array]

WORD: Final = np.dtype(np.uint32)
EVERYTHING: Final = (1 << 32) - 1  # a mask word that allows all its tokens


@dataclass(frozen=True)
class ArraySource:
    """A source's scope and reader. `limits` are the least and the largest value that a destination
    must be able to hold, None where only a round tells. `neutral` is the row of lanes that have
    nothing to say, if there is one: the reader then returns that very array. `from_extras` says
    that a lane without extras is one of them."""

    scope: Scope
    row: Row
    limits: tuple[int, int] | None = None
    neutral: Array | None = None
    from_extras: bool = False


@dataclass(frozen=True, slots=True)
class Destined:
    """What a source is made for: a binding to rows of `columns` elements, in a program."""

    binding: ValueBinding
    at: Place
    columns: int
    element: np.dtype[Any]
    bounds: Bounds

    def expect(self, columns: int, what: str) -> None:
        """Refuses rows of another width."""
        if not columns or self.columns != columns:
            self.at.refuse(
                "destination",
                f"a row has {self.columns} elements, but {what} of this vocabulary {columns}",
            )

    def expect_words(self) -> None:
        """Refuses elements that aren't the words of a mask."""
        if self.element != WORD:
            self.at.refuse("destination", f"{self.binding.source.name} takes U32 words")
        self.refuse_offset()

    def refuse_unless(self, operations: frozenset[Operation]) -> None:
        """Refuses other operations: their lanes don't bring the source."""
        if self.bounds.operation not in operations:
            refuse_operation(self.binding, self.at, self.bounds)

    def refuse_offset(self) -> None:
        """For what has no number to add to."""
        if self.binding.offset:
            self.at.refuse("offset", f"{self.binding.source.name} takes no offset")


def refuse_operation(binding: ValueBinding, at: Place, bounds: Bounds) -> NoReturn:
    """Refuses a source that lanes of the program's operation don't bring."""
    operation, source = bounds.operation.name, binding.source.name
    at.refuse("source", f"the lanes of {operation} programs bring no {source}")


@cache
def constant_row(columns: int, value: int, element: np.dtype[Any]) -> Array:
    """A row of one value, the same array for all who ask; it can't be written to."""
    row = np.full(columns, value, element)
    row.setflags(write=False)
    return row


def words_of(mask: bytes | memoryview, words: int) -> Array:
    """A mask's words; ValueError where it has another number of them."""
    if len(mask) != words * WORD.itemsize:
        raise ValueError(f"has a grammar mask of {len(mask)} bytes, not of {words} words")
    return np.frombuffer(mask, WORD)


def fitting(values: Array, element: np.dtype[Any]) -> Array:
    """The values as they are, where all of them fit the element type; ValueError otherwise."""
    if element.kind == "f" and values.dtype.kind == "f":
        return values
    if element.kind == "f" or values.dtype.kind not in "iu":
        raise ValueError(f"has values of type {values.dtype.name} for {element.name}")
    limits = np.iinfo(element)
    if values.size and not limits.min <= values.min() <= values.max() <= limits.max:
        raise ValueError(f"has values out of bounds for {element.name}")
    return values
