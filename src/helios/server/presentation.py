"""What turns an answer's steps into JSON: the interface of presenters, and what both of them use.

One presenter a request, of `chat_presentation` or `completion_presentation`; both have the same
four methods, so `generation` doesn't know which API it serves. Framing as server-sent events is
`sse`'s.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Protocol

from helios.dataclass import dataclass
from helios.frontend.output import Alternative, PromptToken, TokenText
from helios.server.answers import PromptLogprob, PromptLogprobs, Usage
from helios.server.observation import ChoiceSteps, Step, Totals


@dataclass(frozen=True, slots=True)
class AnswerIdentity:
    """What every part of an answer repeats."""

    id: str
    model: str
    system_fingerprint: str
    created: int

    @staticmethod
    def make(prefix: str, model: str, system_fingerprint: str) -> AnswerIdentity:
        """The identity of an answer that begins now."""
        return AnswerIdentity(
            f"{prefix}-{uuid.uuid4().hex}", model, system_fingerprint, int(time.time())
        )


class Presenter(Protocol):
    """Turns one request's steps into encoded JSON. With `text_only` nothing is said of single
    tokens: steps need not have them, and a chunk before a choice's last has nothing but text that
    isn't the same in all of them."""

    text_only: bool

    def opening(self, choices: int = 1) -> list[bytes]:
        """Chunks that precede the first token of so many choices."""

    def chunks(self, step: Step, totals: Totals | None) -> list[bytes]:
        """The chunks of a step, none if they would say nothing. The last step has totals."""

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk that only counts."""

    def body(self, answers: Sequence[ChoiceSteps], totals: Totals) -> bytes:
        """The whole answer as one JSON object, its choices in order."""


def text_of(token: TokenText | PromptToken | Alternative) -> str:
    """A token's text by itself; half characters as replacement characters."""
    return token.data.decode(errors="replace")


def prompt_logprobs(prompt: Sequence[PromptToken], count: int) -> PromptLogprobs:
    """For each token of a scored prompt the token itself and `count` of the likeliest in its place;
    None for the first."""
    return [_place(token, count) for token in prompt]


def _place(token: PromptToken, count: int) -> dict[int, PromptLogprob] | None:
    if token.logprob is None:
        return None
    found = {token.token: PromptLogprob(token.logprob, token.rank, text_of(token))}
    for rank, other in enumerate(token.alternatives[:count], 1):
        found.setdefault(other.token, PromptLogprob(other.logprob, rank, text_of(other)))
    return found


def prompt_of(answer: ChoiceSteps) -> tuple[PromptToken, ...]:
    """The scored prompt of a whole answer; nothing where it isn't known."""
    return answer.steps[0].prompt or ()
