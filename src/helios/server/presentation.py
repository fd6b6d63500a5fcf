"""Deltas to wire: the JSON body of an answer, or the chunks of its stream.

One presenter a request, chat or plain; both have the same three methods, so `generation` doesn't
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

from helios.frontend.output import OutputDelta, TokenText
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
    FinishReason,
    TokenLogprob,
    Usage,
)

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
    """Turns one request's deltas into encoded JSON."""

    def opening(self) -> list[bytes]:
        """Chunks that precede the first token."""

    def chunk(self, delta: OutputDelta, finish: FinishReason | None) -> bytes | None:
        """The chunk of a delta; None if it would say nothing."""

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk that only counts."""

    def body(self, deltas: Sequence[OutputDelta], finish: FinishReason, usage: Usage) -> bytes:
        """The whole answer as one JSON object."""


class ChatPresenter:
    """Chat answers. `include_usage` adds the `usage` field to every chunk."""

    def __init__(self, identity: AnswerIdentity, *, logprobs: bool, include_usage: bool) -> None:
        self._identity = identity
        self._logprobs = logprobs
        self._usage: UnsetType | None = None if include_usage else UNSET

    def opening(self) -> list[bytes]:
        """One chunk with the role."""
        return [self._encode([ChatChunkChoice(ChatDelta("assistant", ""))], self._usage)]

    def chunk(self, delta: OutputDelta, finish: FinishReason | None) -> bytes | None:
        """Text, log-probabilities and finish reason, as far as there are any."""
        logprobs = self._chat_logprobs(delta.tokens) if delta.tokens else None
        if not delta.text and finish is None and logprobs is None:
            return None
        content = delta.text if delta.text or logprobs is not None else UNSET
        choice = ChatChunkChoice(ChatDelta(content=content), finish, logprobs)
        return self._encode([choice], self._usage)

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk that only counts."""
        return self._encode([], usage)

    def body(self, deltas: Sequence[OutputDelta], finish: FinishReason, usage: Usage) -> bytes:
        """The whole answer as one JSON object."""
        identity = self._identity
        tokens = [token for delta in deltas for token in delta.tokens]
        text = "".join(delta.text for delta in deltas)
        choice = ChatChoice(AssistantMessage(text), finish, self._chat_logprobs(tokens))
        return _encoder.encode(
            ChatCompletion(
                identity.id,
                identity.created,
                identity.model,
                identity.system_fingerprint,
                [choice],
                usage,
            )
        )

    def _encode(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType | None) -> bytes:
        identity = self._identity
        return _encoder.encode(
            ChatChunk(
                identity.id,
                identity.created,
                identity.model,
                identity.system_fingerprint,
                choices,
                usage,
            )
        )

    def _chat_logprobs(self, tokens: Sequence[TokenText]) -> ChatLogprobs | None:
        if not self._logprobs:
            return None
        return ChatLogprobs(
            [
                TokenLogprob(token.data.decode(errors="replace"), token.logprob, list(token.data))
                for token in tokens
            ]
        )


class CompletionPresenter:
    """Plain completions. `include_usage` adds the `usage` field to every chunk."""

    def __init__(self, identity: AnswerIdentity, *, logprobs: bool, include_usage: bool) -> None:
        self._identity = identity
        self._logprobs = logprobs
        self._usage: UnsetType | None = None if include_usage else UNSET

    def opening(self) -> list[bytes]:
        """Nothing: a continuation has no role."""
        return []

    def chunk(self, delta: OutputDelta, finish: FinishReason | None) -> bytes | None:
        """Text, log-probabilities and finish reason, as far as there are any."""
        logprobs = self._completion_logprobs([delta]) if delta.tokens else None
        if not delta.text and finish is None and logprobs is None:
            return None
        return self._encode([CompletionChoice(delta.text, finish, logprobs)], self._usage)

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk that only counts."""
        return self._encode([], usage)

    def body(self, deltas: Sequence[OutputDelta], finish: FinishReason, usage: Usage) -> bytes:
        """The whole answer as one JSON object."""
        text = "".join(delta.text for delta in deltas)
        choice = CompletionChoice(text, finish, self._completion_logprobs(deltas))
        return self._encode([choice], usage)

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
        return CompletionLogprobs(
            [token.data.decode(errors="replace") for token in tokens],
            [token.logprob for token in tokens],
            [token.offset for token in tokens],
        )
