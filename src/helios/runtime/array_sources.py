"""Value sources whose row is an array: grammar masks, copied proposals, image tensors, and those of
`sampling_sources`.

`value_sources` has everything that is a number or a few. `checks.bindings` makes a source for a
binding, `value_writers` reads with it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import numpy as np

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.runtime.array_rows import (
    EVERYTHING,
    WORD,
    Array,
    ArraySource,
    Destined,
    constant_row,
    fitting,
    words_of,
)
from helios.runtime.lanes import SPECULATIVE, extras_of
from helios.runtime.rounds import LaneWork, Proposal
from helios.runtime.sampling_sources import SAMPLING
from helios.runtime.value_sources import NONE, Scope

_NO_PROPOSAL: Final = Proposal((), 0, NONE)


def _grammar_mask(to: Destined) -> ArraySource:
    words = to.bounds.mask_words
    to.expect(words, "a mask")
    to.expect_words()
    allowed = constant_row(words, EVERYTHING, WORD)

    def row(lane: LaneWork, _: int) -> Array:
        mask = extras_of(lane).grammar_mask
        return allowed if mask is None else words_of(mask, words)

    return ArraySource(Scope.LANE, row, neutral=allowed, from_extras=True)


def _proposal(lane: LaneWork) -> Proposal:
    return extras_of(lane).proposal or _NO_PROPOSAL


def _proposal_masks(to: Destined) -> ArraySource:
    """A mask for each target token: a row of its own where packed tokens are indexed, side by side
    in the lane's row otherwise."""
    words, targets = to.bounds.mask_words, to.bounds.target_tokens
    packed = to.binding.indexing is Indexing.PACKED_TOKEN
    to.refuse_unless(SPECULATIVE)
    to.expect(words if packed else words * targets, "a mask" if packed else f"{targets} masks")
    to.expect_words()

    def row(lane: LaneWork, length: int) -> Array:
        masks = _proposal(lane).masks
        if len(masks) > length:
            raise ValueError(f"has {len(masks)} grammar masks for {length} tokens")
        found = np.full((length if packed else targets, words), EVERYTHING, WORD)
        for position, mask in enumerate(masks):
            found[position] = words_of(mask, words)
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


ARRAYS: Final[dict[ValueSource, Callable[[Destined], ArraySource]]] = {
    **SAMPLING,
    ValueSource.GRAMMAR_MASK: _grammar_mask,
    ValueSource.PROPOSAL_TOKEN: _proposal_tokens,
    ValueSource.PROPOSAL_GRAMMAR_MASK: _proposal_masks,
    ValueSource.IMAGE_TENSOR: _image_tensor,
}

# Those whose rows are the same for all lanes that have nothing to say.
NEUTRAL: Final = frozenset(
    (
        ValueSource.GRAMMAR_MASK,
        ValueSource.RECENT_OUTPUT_TOKEN,
        ValueSource.LOGIT_BIAS_TOKEN,
        ValueSource.LOGIT_BIAS,
        ValueSource.TOKEN_MASK,
        ValueSource.BAD_WORD_TOKEN,
        ValueSource.STOP_TOKEN_ID,
    )
)
