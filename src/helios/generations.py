"""What the in-process API gives back: a request's output, step by step or whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from helios.dataclass import dataclass
from helios.frontend.output import Alternative, PromptToken
from helios.frontend.response.deltas import Delta as Part
from helios.scheduler import Finish


@dataclass(frozen=True, slots=True)
class Delta:
    """What a step of a request added: visible text, which may lag behind the tokens by part of a
    character, tokens and their logprobs in nats. The last delta has a finish.
    `reused_prompt_tokens` counts those that came from the prefix cache; it is the same in all.
    `alternatives` has the likeliest tokens in each one's place, if the request asked for some.
    `prompt_scores` are in the first delta of a request that asked for them. `parts` are reasoning,
    content and calls in their order, where a chat's response is read for them."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish | None
    reused_prompt_tokens: int = 0
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    prompt_scores: tuple[PromptToken, ...] = ()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """A request's whole output, as text and as tokens (EOS included) with logprobs in nats.
    `alternatives` has the likeliest tokens in each one's place, if the request asked for some;
    `prompt_scores` the prompt's tokens with their logprobs, if it asked for those; `parts` are
    reasoning, content and calls, piece by piece, where a chat's response is read for them.

    `reused_prompt_tokens` counts those that came from the prefix cache. It says how the output was
    made, not what it is, so generations that differ in nothing else are equal."""

    prompt_tokens: tuple[int, ...]
    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish
    reused_prompt_tokens: int = field(default=0, compare=False)
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    prompt_scores: tuple[PromptToken, ...] = ()
    parts: tuple[Part, ...] = ()


def whole(prompt_tokens: Sequence[int], deltas: Iterator[Delta]) -> Generation:
    """The generation that a request's deltas, all of them, add up to."""
    every = list(deltas)
    finish = every[-1].finish
    assert finish is not None, "a request's last delta has a finish"
    return Generation(
        prompt_tokens=tuple(prompt_tokens),
        text="".join(delta.text for delta in every),
        tokens=tuple(token for delta in every for token in delta.tokens),
        logprobs=tuple(logprob for delta in every for logprob in delta.logprobs),
        finish=finish,
        reused_prompt_tokens=every[-1].reused_prompt_tokens,
        alternatives=tuple(likeliest for delta in every for likeliest in delta.alternatives),
        prompt_scores=every[0].prompt_scores,
        parts=tuple(part for delta in every for part in delta.parts),
    )
