"""Value sources of admission sampling whose row is an array: histograms, recent tokens, biases,
the mask of allowed ids, bad words, stop ids.

Most requests bring none of them: their rows are made once, at start-up. `array_sources` lists
these sources beside its own, `delta_uploads` sends the histograms that travel as deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from helios.contract.enums import ValueSource
from helios.runtime.array_rows import (
    EVERYTHING,
    WORD,
    Array,
    ArraySource,
    Destined,
    constant_row,
)
from helios.runtime.lanes import ADMITTING, admission_of, extras_of
from helios.runtime.rounds import LaneWork, SamplingParameters
from helios.runtime.value_bounds import Bounds
from helios.runtime.value_sources import NONE, REAL_LIMIT, Scope


def tokens_so_far(lane: LaneWork, bounds: Bounds) -> Array:
    """The ids of the lane's history that its histogram counts: those past it are never sampled."""
    return _counted(_history(lane, _penalises(lane)), bounds)


def output_so_far(lane: LaneWork, bounds: Bounds) -> Array:
    """The same of its output tokens alone."""
    return _counted(_output(lane, _penalises(lane)), bounds)


# What each histogram counts.
COUNTED: Final[dict[ValueSource, Callable[[LaneWork, Bounds], Array]]] = {
    ValueSource.PROMPT_HISTOGRAM: tokens_so_far,
    ValueSource.OUTPUT_HISTOGRAM: output_so_far,
}


def _penalises(lane: LaneWork) -> bool:
    return lane.admission is None or lane.admission.sampling.penalises


def _history(lane: LaneWork, looks_back: bool) -> Sequence[int]:
    """The lane's tokens so far; none where nothing looks back at them. ValueError without them."""
    history = extras_of(lane).history
    if history is None and looks_back:
        raise ValueError("has no history to look back at")
    return history or ()


def _output(lane: LaneWork, looks_back: bool) -> Sequence[int]:
    """Those of them that the request has emitted."""
    history = _history(lane, looks_back)
    emitted = admission_of(lane).emitted
    if extras_of(lane).history is not None and emitted > len(history):
        raise ValueError(f"has emitted {emitted} tokens, but a history of {len(history)}")
    return history[len(history) - emitted :] if history else ()


def _counted(tokens: Sequence[int], bounds: Bounds) -> Array:
    if len(tokens) > bounds.context_tokens:
        raise ValueError(f"has a history of {len(tokens)} tokens, {bounds.context_tokens} fit")
    ids = np.asarray(tokens, np.int64)
    if len(ids) and not 0 <= ids.min() <= ids.max() < bounds.input_tokens:
        raise ValueError(f"has a history with ids outside [0, {bounds.input_tokens})")
    return ids[ids < bounds.histogram_tokens]


def histogram(to: Destined) -> ArraySource:
    """A dense row of counts."""
    columns, bounds = to.bounds.histogram_tokens, to.bounds
    to.expect(columns, "a histogram")
    to.refuse_offset()
    to.refuse_unless(ADMITTING)
    read = COUNTED[to.binding.source]

    def row(lane: LaneWork, _: int) -> Array:
        return np.bincount(read(lane, bounds), minlength=columns)

    return ArraySource(Scope.LANE, row, (0, bounds.context_tokens))


def recent_tokens(to: Destined) -> ArraySource:
    """The last output tokens, the latest last, NONE before the first."""
    _check_list(to)
    columns, element = to.columns, to.element
    nothing = constant_row(columns, NONE, element)

    def row(lane: LaneWork, _: int) -> Array:
        output = _output(lane, bool(admission_of(lane).sampling.bad_words))[-columns:]
        if not output:
            return nothing
        found = nothing.copy()
        found[columns - len(output) :] = output
        return found

    return ArraySource(Scope.LANE, row, (NONE, to.bounds.sampled_tokens - 1), nothing)


def token_mask(to: Destined) -> ArraySource:
    """A bit for each token, set where it may come; all set where all may."""
    words = to.bounds.mask_words
    to.refuse_unless(ADMITTING)
    to.expect(words, "a mask")
    to.expect_words()
    everything = constant_row(words, EVERYTHING, WORD)
    bits = words * 8 * WORD.itemsize

    def row(lane: LaneWork, _: int) -> Array:
        allowed = admission_of(lane).sampling.allowed_tokens
        if allowed is None:
            return everything
        _check_ids(allowed, to.bounds)
        set_bits = np.zeros(bits, np.bool_)
        set_bits[list(allowed)] = True
        return np.packbits(set_bits, bitorder="little").view(WORD)

    return ArraySource(Scope.LANE, row, neutral=everything)


def bias_tokens(to: Destined) -> ArraySource:
    """The ids that have a bias."""
    return _ids(to, "biased tokens", lambda sampling: [id for id, _ in sampling.logit_bias])


def stop_ids(to: Destined) -> ArraySource:
    """The ids that the host ends the request at."""
    return _ids(to, "stop ids", lambda sampling: sampling.stop_ids)


def biases(to: Destined) -> ArraySource:
    """The bias of each biased token, 0 after the last."""
    to.refuse_unless(ADMITTING)
    to.refuse_offset()
    if to.element.kind != "f":
        to.at.refuse("destination", "LOGIT_BIAS is real, but the buffer holds integers")
    nothing = constant_row(to.columns, 0, to.element)

    def row(lane: LaneWork, _: int) -> Array:
        given = [bias for _, bias in admission_of(lane).sampling.logit_bias]
        if not given:
            return nothing
        if not all(abs(bias) <= REAL_LIMIT for bias in given):
            raise ValueError("has a bias that is no 32-bit number")
        return _start_of(nothing, np.asarray(given, np.float64), "biases")

    return ArraySource(Scope.LANE, row, neutral=nothing)


def bad_words(to: Destined) -> ArraySource:
    """Each sequence as its length and its ids, then 0 to the end of the row."""
    _check_list(to)
    nothing = constant_row(to.columns, 0, to.element)

    def row(lane: LaneWork, _: int) -> Array:
        words = admission_of(lane).sampling.bad_words
        if not words:
            return nothing
        if not all(words):
            raise ValueError("has a bad word without tokens")
        elements: list[int] = []
        for word in words:
            _check_ids(word, to.bounds)
            elements += (len(word), *word)
        return _start_of(nothing, np.asarray(elements), "elements of bad words")

    limits = 0, max(to.bounds.sampled_tokens, to.columns) - 1
    return ArraySource(Scope.LANE, row, limits, nothing)


def _ids(
    to: Destined, what: str, read: Callable[[SamplingParameters], Sequence[int]]
) -> ArraySource:
    """Ids, then NONE to the end of the row."""
    _check_list(to)
    nothing = constant_row(to.columns, NONE, to.element)

    def row(lane: LaneWork, _: int) -> Array:
        ids = read(admission_of(lane).sampling)
        if not ids:
            return nothing
        _check_ids(ids, to.bounds)
        return _start_of(nothing, np.asarray(ids), what)

    return ArraySource(Scope.LANE, row, (NONE, to.bounds.sampled_tokens - 1), nothing)


def _check_list(to: Destined) -> None:
    to.refuse_unless(ADMITTING)
    to.refuse_offset()
    if to.element.kind == "f":
        to.at.refuse(
            "destination", f"{to.binding.source.name} is integer, but the buffer holds F32"
        )


def _check_ids(ids: Sequence[int], bounds: Bounds) -> None:
    if not all(0 <= id < bounds.sampled_tokens for id in ids):
        raise ValueError(f"names a token outside [0, {bounds.sampled_tokens})")


def _start_of(row: Array, values: Array, what: str) -> Array:
    """A copy of `row` that begins with `values`."""
    if len(values) > len(row):
        raise ValueError(f"has {len(values)} {what}, {len(row)} fit")
    found = row.copy()
    found[: len(values)] = values
    return found


SAMPLING: Final[dict[ValueSource, Callable[[Destined], ArraySource]]] = {
    ValueSource.PROMPT_HISTOGRAM: histogram,
    ValueSource.OUTPUT_HISTOGRAM: histogram,
    ValueSource.RECENT_OUTPUT_TOKEN: recent_tokens,
    ValueSource.LOGIT_BIAS_TOKEN: bias_tokens,
    ValueSource.LOGIT_BIAS: biases,
    ValueSource.TOKEN_MASK: token_mask,
    ValueSource.BAD_WORD_TOKEN: bad_words,
    ValueSource.STOP_TOKEN_ID: stop_ids,
}
