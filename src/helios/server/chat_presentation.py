"""Steps to wire, for chat: the JSON body of an answer, or the chunks of its stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from helios.frontend.output import OutputDelta, PromptToken, TokenText
from helios.frontend.response.deltas import Content, Delta, Reasoning
from helios.server import message_parts
from helios.server.answers import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from helios.server.observation import UNOBSERVED, ChoiceSteps, Observation, Step, Totals
from helios.server.presentation import AnswerIdentity, prompt_logprobs, prompt_of, text_of

_encoder = msgspec.json.Encoder()


class ChatPresenter:
    """Chat answers. `include_usage` adds the `usage` field to every chunk; `prompt_tokens` are
    shown to who observes, and so many of the likeliest where the prompt is scored. Without
    `shows_reasoning` an answer is content and calls alone."""

    def __init__(
        self,
        identity: AnswerIdentity,
        *,
        logprobs: bool,
        include_usage: bool,
        observation: Observation = UNOBSERVED,
        prompt_tokens: Sequence[int] = (),
        scores: int | None = None,
        shows_reasoning: bool = True,
    ) -> None:
        self._identity = identity
        self._logprobs = logprobs
        self._usage: UnsetType | None = None if include_usage else UNSET
        self._observation = observation
        self._prompt_ids = list(prompt_tokens) if observation.token_ids else UNSET
        self._likeliest = scores
        self._shows_reasoning = shows_reasoning
        self.text_only = not logprobs and not observation.token_ids and scores is None

    def opening(self, choices: int = 1) -> list[bytes]:
        """One chunk a choice with the role, and the prompt's ids for who observes. Where the prompt
        is scored these chunks wait for its scores."""
        if self._likeliest is not None:
            return []
        return [self._first(index) for index in range(choices)]

    def _first(self, index: int, prompt: Sequence[PromptToken] = ()) -> bytes:
        """A choice's first chunk."""
        choice = ChatChunkChoice(ChatDelta("assistant", ""), index=index)
        chunk = self._chunk([choice], self._usage)
        return _encoder.encode(
            msgspec.structs.replace(
                chunk, prompt_token_ids=self._prompt_ids, prompt_logprobs=self._scores(prompt)
            )
        )

    def _scores(self, prompt: Sequence[PromptToken]) -> PromptLogprobs | UnsetType:
        if self._likeliest is None or not prompt:
            return UNSET
        return prompt_logprobs(prompt, self._likeliest)

    def chunks(self, step: Step, totals: Totals | None) -> list[bytes]:
        """A chunk for each observed token; then text, log-probabilities and finish reason, as far
        as there are any."""
        delta, finish = step.delta, step.finish
        chunks = [] if step.prompt is None else [self._first(step.index, step.prompt)]
        if self._observation.token_ids:
            chunks += self._observed(step)
        logprobs = self._chat_logprobs(delta.tokens) if delta.tokens else None
        added = message_parts.delta(self._shown(delta))
        if added is None and finish is None and logprobs is None:
            return chunks
        if added is None:
            added = ChatDelta(content="" if logprobs is not None else UNSET)
        choice = ChatChunkChoice(added, finish, logprobs, step.index)
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

    def _shown(self, delta: OutputDelta) -> Iterable[Delta]:
        """What of a delta clients see: parsed parts, or all of an unparsed text."""
        if not delta.parts:
            return (Content(delta.text),) if delta.text else ()
        if self._shows_reasoning:
            return delta.parts
        return (part for part in delta.parts if not isinstance(part, Reasoning))

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
                prompt_logprobs=self._scores(prompt_of(answers[0])),
            )
        )

    def _choice(self, index: int, answer: ChoiceSteps) -> ChatChoice:
        observation = self._observation
        tokens = [token for step in answer.steps for token in step.delta.tokens]
        parts = [part for step in answer.steps for part in self._shown(step.delta)]
        ids: list[int] | UnsetType = UNSET
        times: list[int] | UnsetType = UNSET
        if observation.token_ids:
            ids = [token.token for token in tokens]
        if observation.timed:
            times = [step.completed_ns for step in answer.steps for _ in step.delta.tokens]
        return ChatChoice(
            message_parts.message(parts),
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
                    text_of(token),
                    token.logprob,
                    list(token.data),
                    [
                        TopLogprob(text_of(other), other.logprob, list(other.data))
                        for other in token.alternatives
                    ],
                )
                for token in tokens
            ]
        )
