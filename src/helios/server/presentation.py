"""Steps to wire: the JSON body of an answer, or the chunks of its stream.

One presenter a request, chat or plain; both have the same four methods, so `generation` doesn't
know which API it serves. Framing as server-sent events is `sse`'s.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from helios.frontend.output import Alternative, OutputDelta, TokenText
from helios.server.answers import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from helios.server.observation import UNOBSERVED, ChoiceSteps, Observation, Step, Totals

_encoder = msgspec.json.Encoder()


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


class ChatPresenter:
    """Chat answers. `include_usage` adds the `usage` field to every chunk; `prompt_tokens` are
    shown to who observes."""

    def __init__(
        self,
        identity: AnswerIdentity,
        *,
        logprobs: bool,
        include_usage: bool,
        observation: Observation = UNOBSERVED,
        prompt_tokens: Sequence[int] = (),
    ) -> None:
        self._identity = identity
        self._logprobs = logprobs
        self._usage: UnsetType | None = None if include_usage else UNSET
        self._observation = observation
        self._prompt_ids = list(prompt_tokens) if observation.token_ids else UNSET
        self.text_only = not logprobs and not observation.token_ids

    def opening(self, choices: int = 1) -> list[bytes]:
        """One chunk a choice with the role, and the prompt's ids for who observes."""
        role = ChatDelta("assistant", "")
        openings = [
            self._chunk([ChatChunkChoice(role, index=index)], self._usage)
            for index in range(choices)
        ]
        return [
            _encoder.encode(msgspec.structs.replace(opening, prompt_token_ids=self._prompt_ids))
            for opening in openings
        ]

    def chunks(self, step: Step, totals: Totals | None) -> list[bytes]:
        """A chunk for each observed token; then text, log-probabilities and finish reason, as far
        as there are any."""
        delta, finish = step.delta, step.finish
        chunks = self._observed(step) if self._observation.token_ids else []
        logprobs = self._chat_logprobs(delta.tokens) if delta.tokens else None
        if not delta.text and finish is None and logprobs is None:
            return chunks
        content = delta.text if delta.text or logprobs is not None else UNSET
        choice = ChatChunkChoice(ChatDelta(content=content), finish, logprobs, step.index)
        chunk = self._chunk([choice], self._usage)
        if totals is not None and self._observation.token_ids:
            chunk = msgspec.structs.replace(
                chunk,
                usage=totals.usage if self._usage is UNSET else None,
                reused_prompt_tokens=totals.reused_prompt_tokens,
                performance=totals.performance or UNSET,
            )
        chunks.append(_encoder.encode(chunk))
        return chunks

    def _observed(self, step: Step) -> list[bytes]:
        """One chunk a token, with nothing else."""
        times = [step.completed_ns] if self._observation.timed else UNSET
        return [
            _encoder.encode(
                self._chunk(
                    [
                        ChatChunkChoice(
                            ChatDelta(), token_ids=[token.token], token_timestamps_ns=times
                        )
                    ],
                    self._usage,
                )
            )
            for token in step.delta.tokens
        ]

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk that only counts."""
        return _encoder.encode(self._chunk([], usage))

    def body(self, answers: Sequence[ChoiceSteps], totals: Totals) -> bytes:
        """The whole answer as one JSON object."""
        identity = self._identity
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        observed = self._observation.token_ids
        return _encoder.encode(
            ChatCompletion(
                identity.id,
                identity.created,
                identity.model,
                identity.system_fingerprint,
                choices,
                totals.usage,
                prompt_token_ids=self._prompt_ids,
                reused_prompt_tokens=totals.reused_prompt_tokens if observed else UNSET,
                performance=totals.performance or UNSET,
            )
        )

    def _choice(self, index: int, answer: ChoiceSteps) -> ChatChoice:
        observation = self._observation
        tokens = [token for step in answer.steps for token in step.delta.tokens]
        text = "".join(step.delta.text for step in answer.steps)
        ids: list[int] | UnsetType = UNSET
        times: list[int] | UnsetType = UNSET
        if observation.token_ids:
            ids = [token.token for token in tokens]
        if observation.timed:
            times = [step.completed_ns for step in answer.steps for _ in step.delta.tokens]
        return ChatChoice(
            AssistantMessage(text),
            answer.finish,
            self._chat_logprobs(tokens),
            index,
            token_ids=ids,
            token_timestamps_ns=times,
        )

    def _chunk(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType | None) -> ChatChunk:
        identity = self._identity
        return ChatChunk(
            identity.id,
            identity.created,
            identity.model,
            identity.system_fingerprint,
            choices,
            usage,
        )

    def _chat_logprobs(self, tokens: Sequence[TokenText]) -> ChatLogprobs | None:
        if not self._logprobs:
            return None
        return ChatLogprobs(
            [
                TokenLogprob(
                    _text(token),
                    token.logprob,
                    list(token.data),
                    [
                        TopLogprob(_text(other), other.logprob, list(other.data))
                        for other in token.alternatives
                    ],
                )
                for token in tokens
            ]
        )


class CompletionPresenter:
    """Plain completions. `include_usage` adds the `usage` field to every chunk."""

    def __init__(self, identity: AnswerIdentity, *, logprobs: bool, include_usage: bool) -> None:
        self._identity = identity
        self._logprobs = logprobs
        self.text_only = not logprobs
        self._usage: UnsetType | None = None if include_usage else UNSET

    def opening(self, choices: int = 1) -> list[bytes]:
        """Nothing: a continuation has no role."""
        return []

    def chunks(self, step: Step, totals: Totals | None) -> list[bytes]:
        """Text, log-probabilities and finish reason, as far as there are any."""
        delta, finish = step.delta, step.finish
        logprobs = self._completion_logprobs([delta]) if delta.tokens else None
        if not delta.text and finish is None and logprobs is None:
            return []
        choice = CompletionChoice(delta.text, finish, logprobs, step.index)
        return [self._encode([choice], self._usage)]

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk that only counts."""
        return self._encode([], usage)

    def body(self, answers: Sequence[ChoiceSteps], totals: Totals) -> bytes:
        """The whole answer as one JSON object."""
        choices = []
        for index, answer in enumerate(answers):
            deltas = [step.delta for step in answer.steps]
            text = "".join(delta.text for delta in deltas)
            logprobs = self._completion_logprobs(deltas)
            choices.append(CompletionChoice(text, answer.finish, logprobs, index))
        return self._encode(choices, totals.usage)

    def _encode(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> bytes:
        identity = self._identity
        return _encoder.encode(
            Completion(
                identity.id,
                identity.created,
                identity.model,
                identity.system_fingerprint,
                choices,
                usage,
            )
        )

    def _completion_logprobs(self, deltas: Sequence[OutputDelta]) -> CompletionLogprobs | None:
        if not self._logprobs:
            return None
        tokens = [token for delta in deltas for token in delta.tokens]
        alternatives = any(token.alternatives for token in tokens)
        return CompletionLogprobs(
            [_text(token) for token in tokens],
            [token.logprob for token in tokens],
            [token.offset for token in tokens],
            [_by_text(token) for token in tokens] if alternatives else None,
        )


def _text(token: TokenText | Alternative) -> str:
    return token.data.decode(errors="replace")


def _by_text(token: TokenText) -> dict[str, float]:
    """The likeliest tokens and the generated one. Of two with the same text the likelier stays."""
    found: dict[str, float] = {}
    for other in token.alternatives:
        found.setdefault(_text(other), other.logprob)
    found.setdefault(_text(token), token.logprob)
    return found
