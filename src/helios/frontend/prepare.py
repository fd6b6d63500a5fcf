"""From what a client asked to a `PreparedRequest`: prompt ids, limits, sampling.

The one place that applies the contract's limits and, with `sampling`, its sampling defaults. It
takes plain values, so the HTTP routes and the in-process engine prepare alike; parsing bodies is
the server's business.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, SupportsIndex

from helios.contract.model import SamplingDefaults
from helios.errors import RequestError
from helios.frontend.markers import MarkerGuard
from helios.frontend.options import GenerationOptions as GenerationOptions
from helios.frontend.options import check_types
from helios.frontend.sampling import SEEDS, SamplingResolver
from helios.frontend.stop_checks import stop_conditions
from helios.frontend.stops import NO_STOPS, StopConditions
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from helios.runtime.rounds import SamplingParameters
from helios.runtime.sampling_rules import SamplingRules
from helios.scheduler.ranking import PRIORITIES

CHOICES_LIMIT: Final = 128  # answers to one question


class PromptTooLongError(RequestError):
    """Prompt, or prompt and asked output, don't fit into the model's context."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """Ready to submit. `continues` says that the output goes on from the prompt's text instead
    of starting a message. `priority` is lower where the request is more urgent."""

    prompt_tokens: list[int]
    output_limit: int
    sampling: SamplingParameters
    eos_ids: tuple[int, ...]
    continues: bool
    priority: int = 0
    stops: StopConditions = NO_STOPS


def choices(prepared: PreparedRequest, count: int) -> list[PreparedRequest]:
    """`count` requests of the same prompt, the i-th with the seed plus i. Raises RequestError
    naming `n` where that can't be."""
    if not 1 <= count <= CHOICES_LIMIT:
        raise RequestError(
            f"{count} is out of range", where="n", remedy=f"Give a value from 1 to {CHOICES_LIMIT}"
        )
    sampling = prepared.sampling
    seeds = [(sampling.seed + index) % SEEDS for index in range(count)]
    return [replace(prepared, sampling=replace(sampling, seed=seed)) for seed in seeds]


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """Bounds of a core: `max_context_tokens` for prompt and output together, valid ids of prompts
    in [0, input_tokens), of outputs in [0, sampled_tokens)."""

    max_context_tokens: int
    input_tokens: int
    sampled_tokens: int


class Preparer:
    """Prepares requests for one core. Safe to use from several threads.

    `template` is None for cores without a chat template; `bos_token` is put before plain
    prompts that don't begin with it, None where the tokenizer wants none.
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        guard: MarkerGuard,
        template: ChatTemplate | None,
        limits: PromptLimits,
        defaults: SamplingDefaults,
        rules: SamplingRules,
        eos_ids: tuple[int, ...],
        bos_token: int | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._guard = guard
        self._template = template
        self._limits = limits
        self._defaults = defaults
        self._sampling = SamplingResolver(tokenizer, defaults, rules, limits.sampled_tokens)
        self._eos_ids = eos_ids
        self._bos_token = bos_token

    def prepare_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerationOptions,
        *,
        template_variables: Mapping[str, Any] | None = None,
    ) -> PreparedRequest:
        """A request for the next assistant message. Each message has `role` and text `content`.

        Raises RequestError when the template refuses the messages or the prompt doesn't fit.
        """
        if self._template is None:
            raise RequestError(
                "this model has no chat template",
                where="messages",
                remedy="Use /v1/completions",
            )
        guard = self._guard
        shielded = []
        for index, message in enumerate(messages):
            only = message.get("role") == "assistant"
            where = f"messages[{index}]"
            shielded.append(
                {
                    key: guard.shield(value, special_only=only, where=where)
                    for key, value in message.items()
                }
            )
        variables = {
            key: guard.shield(value, special_only=False, where="chat_template_kwargs")
            for key, value in (template_variables or {}).items()
        }
        rendered = self._template.render(shielded, variables=variables)
        self._check_text(rendered, where="messages")
        tokens = guard.encode(rendered, where="messages")
        return self._prepared(tokens, options, where="messages", continues=False)

    def prepare_completion(
        self, prompt: str | Sequence[int], options: GenerationOptions
    ) -> PreparedRequest:
        """A request that continues `prompt`: text, in which markers count as markers because it
        is the whole prompt, or token ids as they are.

        Raises RequestError for ids outside the vocabulary and for prompts that don't fit.
        """
        if isinstance(prompt, str):
            self._check_text(prompt, where="prompt")
            tokens = self._tokenizer.encode(prompt)
            if self._bos_token is not None and tokens[:1] != [self._bos_token]:
                tokens.insert(0, self._bos_token)
        else:
            tokens = _token_ids(prompt)
        return self._prepared(tokens, options, where="prompt", continues=True)

    def _check_text(self, text: str, *, where: str) -> None:
        """Refuses, before the work of tokenizing it, text that can't be tokenized or that can't
        fit however well it is tokenized."""
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"character {error.start} is half of a surrogate pair or a byte that isn't UTF-8",
                where=where,
                remedy="Send valid Unicode text",
            ) from None
        context = self._limits.max_context_tokens
        # No token is shorter than a byte, so short texts needn't be looked at.
        if len(data) < context or (least := self._tokenizer.least_tokens(data)) < context:
            return
        raise PromptTooLongError(
            f"the prompt has at least {least} tokens, and prompt and output together may have"
            f" {context}",
            where=where,
            remedy=f"Shorten the prompt to at most {context - 1} tokens",
        )

    def _prepared(
        self, tokens: list[int], options: GenerationOptions, *, where: str, continues: bool
    ) -> PreparedRequest:
        limits = self._limits
        check_types(options)
        if not tokens:
            raise RequestError("the prompt has no tokens", where=where, remedy="Send some text")
        if min(tokens) < 0 or max(tokens) >= limits.input_tokens:
            wrong = next(t for t in tokens if not 0 <= t < limits.input_tokens)
            raise RequestError(
                f"token id {wrong} is not in the model's vocabulary",
                where=where,
                remedy=f"Ids are from 0 to {limits.input_tokens - 1}",
            )
        output_limit = self._output_limit(len(tokens), options.max_tokens, where)
        stops = stop_conditions(
            options.stop,
            options.stop_token_ids,
            options.stop_token_sequences,
            sampled_tokens=limits.sampled_tokens,
        )
        return PreparedRequest(
            prompt_tokens=tokens,
            output_limit=output_limit,
            sampling=self._sampling.resolve(options, output_limit, stops.single_tokens),
            eos_ids=() if options.ignore_eos else self._eos_ids,
            continues=continues,
            priority=_priority(options.priority),
            stops=stops,
        )

    def _output_limit(self, prompt_tokens: int, asked: int | None, where: str) -> int:
        context = self._limits.max_context_tokens
        left = context - prompt_tokens
        if left < 1:
            raise PromptTooLongError(
                f"the prompt has {prompt_tokens} tokens, and prompt and output together may have"
                f" {context}",
                where=where,
                remedy=f"Shorten the prompt to at most {context - 1} tokens",
            )
        if asked is None:
            return min(left, self._defaults.max_output_tokens or left)
        if asked < 1:
            raise RequestError(
                f"{asked} is too small", where="max_tokens", remedy="Ask for 1 or more"
            )
        if asked > left:
            raise PromptTooLongError(
                f"{asked} output tokens after a prompt of {prompt_tokens} tokens make"
                f" {prompt_tokens + asked}, and the model's context holds {context}",
                where="max_tokens",
                remedy=f"Ask for at most {left}, or shorten the prompt",
            )
        return asked


def _token_ids(prompt: Sequence[int]) -> list[int]:
    """A client's token ids; RequestError for what isn't a list of integers."""
    if not isinstance(prompt, Iterable) or isinstance(prompt, bytes | bytearray | Mapping):
        raise RequestError(
            f"is a {type(prompt).__name__}, neither text nor token ids", where="prompt"
        )
    tokens = list(prompt)
    if set(map(type, tokens)) == {int}:
        return tokens
    for index, token in enumerate(tokens):
        if not isinstance(token, SupportsIndex) or isinstance(token, bool):
            raise RequestError(f"{token!r:.40} is no token id", where=f"prompt[{index}]")
    return [operator.index(token) for token in tokens]


def _priority(asked: int | None) -> int:
    priority = asked or 0
    if abs(priority) > PRIORITIES:
        raise RequestError(
            f"{priority} is out of range",
            where="priority",
            remedy=f"Give a value from {-PRIORITIES} to {PRIORITIES}; lower is more urgent",
        )
    return operator.index(priority)
