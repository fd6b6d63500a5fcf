"""Which sampling parameters a core's programs apply, and whether a request's fit.

Derived from what the programs that take up requests are fed; no model is known. `selection` puts
the rules into the geometry, the frontend prepares requests by them, the scheduler checks again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Final, NamedTuple

from helios.contract.enums import ValueSource
from helios.contract.model import GraphContract
from helios.dataclass import dataclass
from helios.kernels.catalogue import (
    BAD_WORD_CAPACITY,
    BIAS_CAPACITY,
    RECENT_CAPACITY,
    STOP_CAPACITY,
    TOP_CAPACITY,
)
from helios.runtime.lanes import ADMITTING
from helios.runtime.rounds import SamplingParameters

# The longest bad word: its last token after as many as the device remembers.
BAD_WORD_TOKENS: Final = RECENT_CAPACITY + 1

_V = ValueSource
_SOURCES: Final = {
    "penalties": (
        _V.REPETITION_PENALTY,
        _V.PRESENCE_PENALTY,
        _V.FREQUENCY_PENALTY,
        _V.PROMPT_HISTOGRAM,
        _V.OUTPUT_HISTOGRAM,
    ),
    "logit_bias": (_V.LOGIT_BIAS_TOKEN, _V.LOGIT_BIAS),
    "allowed_tokens": (_V.TOKEN_MASK,),
    "bad_words": (_V.BAD_WORD_TOKEN, _V.RECENT_OUTPUT_TOKEN),
    "min_tokens": (_V.MIN_TOKENS, _V.STOP_TOKEN_ID),
    "top_logprobs": (_V.TOP_LOGPROBS,),
}


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """What can be asked of a core beside temperature, top_k, top_p and min_p."""

    penalties: bool = False
    logit_bias: bool = False
    allowed_tokens: bool = False
    bad_words: bool = False
    min_tokens: bool = False
    top_logprobs: bool = False


# Those of programs from before there were any others.
PLAIN: Final = SamplingRules()


class SamplingFault(NamedTuple):
    """A parameter by the name that clients give it, what is wrong with it, and what to do.
    `unsupported` says that it's the core's programs which don't apply it."""

    parameter: str
    what: str
    remedy: str
    unsupported: bool = False


def sampling_rules(graphs: Iterable[GraphContract]) -> SamplingRules:
    """The rules of a contract's graphs, or of the selected ones: all that take up requests must be
    fed what a parameter needs."""
    fed = [
        {binding.source for binding in graph.bindings}
        for graph in graphs
        if graph.operation in ADMITTING
    ]
    return SamplingRules(
        **{
            field.name: bool(fed)
            and all(sources.issuperset(_SOURCES[field.name]) for sources in fed)
            for field in fields(SamplingRules)
        }
    )


def sampling_fault(
    sampling: SamplingParameters, rules: SamplingRules, vocabulary_tokens: int
) -> SamplingFault | None:
    """The first parameter that the core's programs can't apply, or that can't be."""
    return next(_faults(sampling, rules, vocabulary_tokens), None)


def _faults(
    sampling: SamplingParameters, rules: SamplingRules, vocabulary_tokens: int
) -> Iterator[SamplingFault]:
    for parameter, asked, supported in (
        ("repetition_penalty", sampling.repetition_penalty != 1.0, rules.penalties),
        ("presence_penalty", sampling.presence_penalty != 0.0, rules.penalties),
        ("frequency_penalty", sampling.frequency_penalty != 0.0, rules.penalties),
        ("logit_bias", bool(sampling.logit_bias), rules.logit_bias),
        ("allowed_token_ids", sampling.allowed_tokens is not None, rules.allowed_tokens),
        ("bad_words", bool(sampling.bad_words), rules.bad_words),
        ("min_tokens", sampling.min_tokens != 0, rules.min_tokens),
        ("top_logprobs", sampling.top_logprobs != 0, rules.top_logprobs),
    ):
        if asked and not supported:
            yield SamplingFault(
                parameter,
                "this core's programs don't apply it",
                "Leave it out, or prepare the model again",
                unsupported=True,
            )
    yield from _wrong_numbers(sampling)
    yield from _wrong_ids(sampling, vocabulary_tokens)
    yield from _too_many(sampling)
    yield from _nothing_left(sampling)


def _wrong_numbers(sampling: SamplingParameters) -> Iterator[SamplingFault]:
    if not (math.isfinite(sampling.repetition_penalty) and sampling.repetition_penalty > 0.0):
        yield SamplingFault(
            "repetition_penalty",
            f"is {sampling.repetition_penalty!r}",
            "Give a value above 0; 1 is off",
        )
    for parameter in ("presence_penalty", "frequency_penalty"):
        value = getattr(sampling, parameter)
        if not math.isfinite(value):
            yield SamplingFault(parameter, f"is {value!r}", "Give a number; 0 is off")
    for token, bias in sampling.logit_bias:
        if not math.isfinite(bias):
            yield SamplingFault("logit_bias", f"adds {bias!r} to token {token}", "Give a number")
    if sampling.min_tokens < 0:
        yield SamplingFault("min_tokens", f"is {sampling.min_tokens}", "Give 0 or more")
    if not 0 <= sampling.top_logprobs <= TOP_CAPACITY:
        yield SamplingFault(
            "top_logprobs",
            f"is {sampling.top_logprobs}",
            f"Ask for at most {TOP_CAPACITY} alternatives",
        )


def _wrong_ids(sampling: SamplingParameters, vocabulary_tokens: int) -> Iterator[SamplingFault]:
    named: tuple[tuple[str, Sequence[int]], ...] = (
        ("logit_bias", [token for token, _ in sampling.logit_bias]),
        ("allowed_token_ids", sampling.allowed_tokens or ()),
        ("bad_words", [token for word in sampling.bad_words for token in word]),
        ("stop_token_ids", sampling.stop_ids),
    )
    for parameter, ids in named:
        if ids and not 0 <= min(ids) <= max(ids) < vocabulary_tokens:
            wrong = next(token for token in ids if not 0 <= token < vocabulary_tokens)
            yield SamplingFault(
                parameter,
                f"token id {wrong} can't be generated by this model",
                f"Ids are from 0 to {vocabulary_tokens - 1}",
            )


def _too_many(sampling: SamplingParameters) -> Iterator[SamplingFault]:
    if len(sampling.logit_bias) > BIAS_CAPACITY:
        yield SamplingFault(
            "logit_bias",
            f"has {len(sampling.logit_bias)} tokens",
            f"Give at most {BIAS_CAPACITY}",
        )
    if sampling.min_tokens and len(sampling.stop_ids) > STOP_CAPACITY:
        yield SamplingFault(
            "stop_token_ids",
            f"has {len(sampling.stop_ids)} ids beside min_tokens",
            f"Give at most {STOP_CAPACITY}, or no min_tokens",
        )
    for word in sampling.bad_words:
        if not 1 <= len(word) <= BAD_WORD_TOKENS:
            yield SamplingFault(
                "bad_words",
                f"has a word of {len(word)} tokens",
                f"Give words of 1 to {BAD_WORD_TOKENS} tokens",
            )
    elements = sum(1 + len(word) for word in sampling.bad_words)
    if elements > BAD_WORD_CAPACITY:
        yield SamplingFault(
            "bad_words",
            f"has {len(sampling.bad_words)} words of {elements - len(sampling.bad_words)} tokens",
            f"Give fewer: words and tokens may be {BAD_WORD_CAPACITY} together",
        )


def _nothing_left(sampling: SamplingParameters) -> Iterator[SamplingFault]:
    """What would leave no token to choose, whatever comes before."""
    allowed = sampling.allowed_tokens
    if allowed is None:
        return
    if not allowed:
        yield SamplingFault("allowed_token_ids", "is empty", "Allow a token, or leave it out")
    never = {word[0] for word in sampling.bad_words if len(word) == 1}
    if allowed and never.issuperset(allowed):
        yield SamplingFault(
            "bad_words", "has every token of allowed_token_ids", "Leave a token to choose"
        )
