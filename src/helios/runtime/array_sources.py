"""Value sources whose row is an array: histograms, grammar masks, copied proposals, image tensors.

`value_sources` has everything that is a number or a few. Here a source is made for one binding,
since the destination's row decides about it; what doesn't go together is refused at the binding's
place. `checks.bindings` calls it, `value_writers` and `delta_uploads` read with what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import ValueBinding
from helios.runtime.checks.places import Place
from helios.runtime.lanes import ADMITTING, SPECULATIVE, extras_of
from helios.runtime.rounds import LaneWork, Proposal
from helios.runtime.value_bounds import Bounds
from helios.runtime.value_sources import NONE, Scope

Array = NDArray[Any]
# The row of a lane, or a row for each of its packed tokens, whose number is given. Raises
# ValueError for a lane that lacks it or whose values don't fit.
Row = Callable[[LaneWork, int], Array]

_NO_PROPOSAL: Final = Proposal((), 0, NONE)
_WORD: Final = np.dtype(np.uint32)
_EVERYTHING: Final = (1 << 32) - 1  # a mask word that allows all its tokens


@dataclass(frozen=True)
class ArraySource:
    """A source's scope and reader. `limits` are the least and the largest value that a destination
    must be able to hold, None where only a round tells."""

    scope: Scope
    row: Row
    limits: tuple[int, int] | None = None


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


def counts(lane: LaneWork, bounds: Bounds) -> Array:
    """How often each id of the histogram occurs in the lane's history. Ids past the histogram are
    never sampled and not counted."""
    history = extras_of(lane).history
    if history is None:
        raise ValueError("has no history to count")
    ids = np.asarray(history, np.int64)
    if len(ids) > bounds.context_tokens:
        raise ValueError(f"has a history of {len(ids)} tokens, {bounds.context_tokens} fit")
    if len(ids) and not 0 <= ids.min() <= ids.max() < bounds.input_tokens:
        raise ValueError(f"has a history with ids outside [0, {bounds.input_tokens})")
    return np.bincount(ids[ids < bounds.histogram_tokens], minlength=bounds.histogram_tokens)


def _histogram(to: Destined) -> ArraySource:
    to.expect(to.bounds.histogram_tokens, "a histogram")
    to.refuse_offset()
    to.refuse_unless(ADMITTING)
    limits = (0, to.bounds.context_tokens)
    return ArraySource(Scope.LANE, lambda lane, _: counts(lane, to.bounds), limits)


def _words_of(mask: bytes, words: int) -> Array:
    if len(mask) != words * _WORD.itemsize:
        raise ValueError(f"has a grammar mask of {len(mask)} bytes, not of {words} words")
    return np.frombuffer(mask, _WORD)


def _expect_words(to: Destined) -> None:
    if to.element != _WORD:
        to.at.refuse("destination", f"{to.binding.source.name} takes U32 words")
    to.refuse_offset()


def _grammar_mask(to: Destined) -> ArraySource:
    words = to.bounds.mask_words
    to.expect(words, "a mask")
    _expect_words(to)
    allowed = np.full(words, _EVERYTHING, _WORD)

    def row(lane: LaneWork, _: int) -> Array:
        mask = extras_of(lane).grammar_mask
        return allowed if mask is None else _words_of(mask, words)

    return ArraySource(Scope.LANE, row)


def _proposal(lane: LaneWork) -> Proposal:
    return extras_of(lane).proposal or _NO_PROPOSAL


def _proposal_masks(to: Destined) -> ArraySource:
    """A mask for each target token: a row of its own where packed tokens are indexed, side by side
    in the lane's row otherwise."""
    words, targets = to.bounds.mask_words, to.bounds.target_tokens
    packed = to.binding.indexing is Indexing.PACKED_TOKEN
    to.refuse_unless(SPECULATIVE)
    to.expect(words if packed else words * targets, "a mask" if packed else f"{targets} masks")
    _expect_words(to)

    def row(lane: LaneWork, length: int) -> Array:
        masks = _proposal(lane).masks
        if len(masks) > length:
            raise ValueError(f"has {len(masks)} grammar masks for {length} tokens")
        found = np.full((length if packed else targets, words), _EVERYTHING, _WORD)
        for position, mask in enumerate(masks):
            found[position] = _words_of(mask, words)
        return found if packed else found.reshape(-1)

    return ArraySource(Scope.TOKEN if packed else Scope.LANE, row)


def _proposal_tokens(to: Destined) -> ArraySource:
    """Copied ids, then NONE to the end of the row."""
    columns, offset = to.columns, to.binding.offset
    to.refuse_unless(SPECULATIVE)
    wanted = to.bounds.target_tokens - 1
    if columns < wanted:
        to.at.refuse("destination", f"a row has {columns} elements, for {wanted} proposed tokens")

    def row(lane: LaneWork, length: int) -> Array:
        tokens = _proposal(lane).tokens
        if len(tokens) >= max(length, 1):
            raise ValueError(f"has {len(tokens)} proposed tokens for {length} target tokens")
        found = np.full(columns, NONE, np.int64)
        found[: len(tokens)] = tokens
        found[: len(tokens)] += offset
        return fitting(found, to.element)

    return ArraySource(Scope.LANE, row, (NONE, to.bounds.sampled_tokens - 1))


def _image_tensor(to: Destined) -> ArraySource:
    """The named output of the image layout: a row for each packed token of the lane, or one for
    the lane. Lanes whose token the device feeds have zeros."""
    name, columns, offset = to.binding.image_tensor, to.columns, to.binding.offset
    scope = Scope.LANE
    if to.binding.indexing is Indexing.PACKED_TOKEN:
        scope = Scope.TOKEN
    elif to.binding.indexing is Indexing.SCALAR:
        scope = Scope.ROUND
        if to.bounds.lanes != 1:
            to.at.refuse("indexing", f"SCALAR has no room for {to.bounds.lanes} lanes' tensors")
    if to.element.kind == "f":
        to.refuse_offset()

    def row(lane: LaneWork, length: int) -> Array:
        tensor = extras_of(lane).images.get(name)
        shape = (length, columns) if scope is Scope.TOKEN else (columns,)
        if tensor is None:
            if to.bounds.operation is Operation.MIXED and not lane.tokens:
                return np.zeros(shape, to.element)
            raise ValueError(f"has no image tensor {name!r}")
        given = tensor.shape[:1] if scope is Scope.TOKEN else ()
        if given != shape[: len(given)] or tensor.size != prod(shape):
            raise ValueError(f"has an image tensor of shape {tensor.shape}, not {shape}")
        values = tensor.reshape(shape)
        if offset:
            values = fitting(values, np.dtype(np.int64)).astype(np.int64) + offset
        return fitting(values, to.element)

    return ArraySource(scope, row)


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


ARRAYS: Final[dict[ValueSource, Callable[[Destined], ArraySource]]] = {
    ValueSource.PROMPT_HISTOGRAM: _histogram,
    ValueSource.GRAMMAR_MASK: _grammar_mask,
    ValueSource.PROPOSAL_TOKEN: _proposal_tokens,
    ValueSource.PROPOSAL_GRAMMAR_MASK: _proposal_masks,
    ValueSource.IMAGE_TENSOR: _image_tensor,
}
