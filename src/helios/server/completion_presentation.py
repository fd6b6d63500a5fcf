"""Steps to wire, for plain completions: the JSON body of an answer, or the chunks of its stream.

With `echo` an answer begins with its prompt: its text, and where log-probabilities are wanted its
tokens before those of the output.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from helios.frontend.output import OutputDelta, PromptToken, TokenText
from helios.frontend.prepare import PreparedRequest
from helios.server.answers import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    PromptLogprobs,
    Usage,
)
from helios.server.observation import ChoiceSteps, Step, Totals
from helios.server.presentation import AnswerIdentity, prompt_logprobs, prompt_of, text_of

_encoder = msgspec.json.Encoder()


class CompletionPresenter:
    """Plain completions of `requests`, one a choice. `include_usage` adds the `usage` field to
    every chunk. `logprobs` are the likeliest tokens that are shown in each one's place, `scores`
    those in the places of the prompt's; None shows no log-probabilities there."""

    def __init__(
        self,
        identity: AnswerIdentity,
        requests: Sequence[PreparedRequest],
        *,
        logprobs: int | None,
        scores: int | None,
        include_usage: bool,
    ) -> None:
        self._identity = identity
        self._shown = [request.shown for request in requests]
        self._logprobs = logprobs
        self._scores = scores
        self.text_only = logprobs is None and scores is None
        self._usage: UnsetType | None = None if include_usage else UNSET

    def opening(self, choices: int = 1) -> list[bytes]:
        """Prompts that are shown without scores; a continuation has no role."""
        if not self.text_only:
            return []
        return [
            self._encode([CompletionChoice(shown.text, None, None, index)], self._usage)
            for index, shown in enumerate(self._shown)
            if shown is not None
        ]

    def chunks(self, step: Step, totals: Totals | None) -> list[bytes]:
        """The prompt with its scores, once and by itself; text, log-probabilities and finish
        reason, as far as there are any."""
        delta, finish = step.delta, step.finish
        chunks = []
        if step.prompt:
            text, logprobs = self._prompt(step.index, step.prompt)
            choice = CompletionChoice(
                text, None, logprobs, step.index, self._prompt_logprobs(step.prompt)
            )
            chunks.append(self._encode([choice], self._usage))
        logprobs = self._completion_logprobs([delta]) if delta.tokens else None
        if delta.text or finish is not None or logprobs is not None:
            choice = CompletionChoice(delta.text, finish, logprobs, step.index)
            chunks.append(self._encode([choice], self._usage))
        return chunks

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk that only counts."""
        return self._encode([], usage)

    def body(self, answers: Sequence[ChoiceSteps], totals: Totals) -> bytes:
        """The whole answer as one JSON object."""
        choices = []
        for index, answer in enumerate(answers):
            scored = prompt_of(answer)
            text, before = self._prompt(index, scored)
            deltas = [step.delta for step in answer.steps]
            text += "".join(delta.text for delta in deltas)
            logprobs = _joined(before, self._completion_logprobs(deltas))
            choices.append(
                CompletionChoice(
                    text, answer.finish, logprobs, index, self._prompt_logprobs(scored)
                )
            )
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

    def _prompt(
        self, index: int, prompt: Sequence[PromptToken]
    ) -> tuple[str, CompletionLogprobs | None]:
        """What an answer begins with: nothing where its prompt isn't shown."""
        shown = self._shown[index]
        if shown is None:
            return "", None
        if self._logprobs is None or not prompt:
            return shown.text, None
        return shown.text, CompletionLogprobs(
            [text_of(token) for token in prompt],
            [token.logprob for token in prompt],
            list(shown.offsets),
            [_by_text(token, self._logprobs) for token in prompt] if self._logprobs else None,
        )

    def _prompt_logprobs(self, prompt: Sequence[PromptToken]) -> PromptLogprobs | UnsetType:
        if self._scores is None or not prompt:
            return UNSET
        return prompt_logprobs(prompt, self._scores)

    def _completion_logprobs(self, deltas: Sequence[OutputDelta]) -> CompletionLogprobs | None:
        if self._logprobs is None:
            return None
        tokens = [token for delta in deltas for token in delta.tokens]
        return CompletionLogprobs(
            [text_of(token) for token in tokens],
            [token.logprob for token in tokens],
            [token.offset for token in tokens],
            [_by_text(token, self._logprobs) for token in tokens] if self._logprobs else None,
        )


def _joined(
    before: CompletionLogprobs | None, after: CompletionLogprobs | None
) -> CompletionLogprobs | None:
    """Those of a prompt and of what follows it."""
    if before is None or after is None:
        return after
    likeliest = None
    if before.top_logprobs is not None and after.top_logprobs is not None:
        likeliest = before.top_logprobs + after.top_logprobs
    return CompletionLogprobs(
        before.tokens + after.tokens,
        before.token_logprobs + after.token_logprobs,
        before.text_offset + after.text_offset,
        likeliest,
    )


def _by_text(token: TokenText | PromptToken, count: int) -> dict[str, float] | None:
    """`count` of the likeliest tokens and the one that is there; None where nothing is known. Of
    two with the same text the likelier stays."""
    if token.logprob is None:
        return None
    found: dict[str, float] = {}
    for other in token.alternatives[:count]:
        found.setdefault(text_of(other), other.logprob)
    found.setdefault(text_of(token), token.logprob)
    return found
