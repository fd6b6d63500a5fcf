"""From what a client asked to a `PreparedRequest`: prompt ids, limits, sampling.

The one place that applies the contract's limits and, with `sampling`, its sampling defaults. It
takes plain values, so the HTTP routes and the in-process engine prepare alike; parsing bodies is
the server's business, rendering and tokenizing that of `prompts`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from helios.contract.model import SamplingDefaults
from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.chat_options import PLAIN_CHAT, ChatOptions
from helios.frontend.grammar.companions import check_companions
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.structural_tags import AnswerForm
from helios.frontend.options import GenerationOptions as GenerationOptions
from helios.frontend.options import check_types
from helios.frontend.prompts import LONGEST_CONTEXT, TOO_LONG, Prompt, PromptMaker, ShownPrompt
from helios.frontend.prompts import PromptTooLongError as PromptTooLongError
from helios.frontend.responses import ResponseReading, ResponseStart
from helios.frontend.sampling import SEEDS, SamplingResolver, UnsupportedParameterError
from helios.frontend.stop_checks import stop_conditions
from helios.frontend.stops import NO_STOPS, StopConditions
from helios.frontend.tools import NO_TOOLS
from helios.runtime.grammar_rules import REMEDY, UNSUPPORTED
from helios.runtime.rounds import SamplingParameters
from helios.runtime.sampling_rules import SamplingRules
from helios.runtime.scoring_rules import ScoringRules, scoring_fault
from helios.scheduler.ranking import PRIORITIES
from helios.token_ids import first_outside

CHOICES_LIMIT: Final = 128  # answers to one question


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """Ready to submit. `continues` says that the output goes on from the prompt's text instead
    of starting a message. `priority` is lower where the request is more urgent. `prompt_text` is
    what the tokens are of; None where the client gave ids. `prompt_logprobs` is how many of the
    likeliest tokens are wanted where the prompt is scored, None where it isn't; `shown` the prompt
    as its answer begins with it, if it does. With `unanswered`
    nothing is to be generated; the one token that every request makes has no reader. `response`
    is None where the output is plain text, `grammar` where it is free; `grammar_where` is the field
    that asks for it. `prefix_boundaries` are
    counts of first prompt tokens that other conversations may share."""

    prompt_tokens: list[int]
    output_limit: int
    sampling: SamplingParameters
    eos_ids: tuple[int, ...]
    continues: bool
    priority: int = 0
    stops: StopConditions = NO_STOPS
    prompt_text: str | None = None
    prompt_logprobs: int | None = None
    shown: ShownPrompt | None = None
    unanswered: bool = False
    response: ResponseStart | None = None
    grammar: str | None = None
    grammar_where: str = ""
    prefix_boundaries: tuple[int, ...] = ()


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
    """Prepares requests for one core, with the prompts that `prompts` makes. Safe to use from
    several threads."""

    def __init__(
        self,
        *,
        prompts: PromptMaker,
        limits: PromptLimits,
        defaults: SamplingDefaults,
        rules: SamplingRules,
        scoring: ScoringRules,
        eos_ids: tuple[int, ...],
        reading: ResponseReading,
        takes_grammars: bool = False,
    ) -> None:
        self.prompts = prompts
        self.reading = reading
        self._takes_grammars = takes_grammars
        self._limits = limits
        self._defaults = defaults
        self._sampling = SamplingResolver(prompts.tokenizer, defaults, rules, limits.sampled_tokens)
        self._scoring = scoring
        self._eos_ids = eos_ids

    def prepare_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerationOptions,
        chat: ChatOptions = PLAIN_CHAT,
    ) -> PreparedRequest:
        """A request for the next assistant message. Each message has `role` and `content`.

        Raises RequestError when the template refuses the messages, the prompt doesn't fit, or
        what the answer should be can't be made a grammar.
        """
        if chat.tools.callable and not self.reading.knows_calls:
            raise UnsupportedParameterError(
                "this model's core declares no syntax of calls",
                where="tools",
                remedy="Leave them out, or prepare the core with one",
            )
        prompt = self.prompts.of_messages(
            messages,
            variables=chat.variables,
            tools=chat.definitions,
            documents=chat.documents,
            continue_last=chat.continue_last,
        )
        prepared = self._prepared(prompt, options, where="messages", continues=chat.continue_last)
        constraint = Constraint(chat.structure, chat.tools, chat.thinking)
        opaque = constraint.is_opaque(self.reading.call_opener)
        response = self.reading.start(prompt.tokens, chat.tools, opaque=opaque)
        reads = self.reading.reads(chat.tools)
        prepared = replace(prepared, response=response if reads else None)
        return self._constrained(prepared, options, constraint, response.opened, bare=not reads)

    def prepare_completion(
        self,
        prompt: str | Sequence[int],
        options: GenerationOptions,
        *,
        shown: bool = False,
        structure: AnswerForm | None = None,
    ) -> PreparedRequest:
        """A request that continues `prompt`: text, in which markers count as markers because it
        is the whole prompt, or token ids as they are. With `shown` the answer begins with it, and
        nothing need follow: `max_tokens` may be 0. `structure` is what the whole output has to
        be.

        Raises RequestError for ids outside the vocabulary and for prompts that don't fit, and for
        a structure that can't be made a grammar.
        """
        maker = self.prompts
        made = maker.of_text(prompt) if isinstance(prompt, str) else maker.of_ids(prompt)
        prepared = self._prepared(made, options, where="prompt", continues=True, shown=shown)
        if structure is None:
            return prepared
        constraint = Constraint(structure, NO_TOOLS)
        return self._constrained(prepared, options, constraint, None, bare=True)

    def _constrained(
        self,
        prepared: PreparedRequest,
        options: GenerationOptions,
        constraint: Constraint,
        opened: str | None,
        *,
        bare: bool,
    ) -> PreparedRequest:
        """The request with its grammar, if it is to have one. Raises RequestError."""
        if not constraint:
            return prepared
        self._check_grammars(constraint)
        check_companions(options, constraint, self.reading.is_text, bare=bare)
        allowed = prepared.sampling.allowed_tokens
        grammar = self.reading.grammar(constraint, opened, allowed)
        return replace(prepared, grammar=grammar, grammar_where=constraint.where)

    def _check_grammars(self, constraint: Constraint) -> None:
        if not self._takes_grammars:
            raise UnsupportedParameterError(UNSUPPORTED, where=constraint.where, remedy=REMEDY)
        if constraint.thinking is not None and not self.reading.knows_reasoning:
            raise UnsupportedParameterError(
                "this model's core declares no reasoning",
                where=constraint.thinking.where,
                remedy="Leave it out",
            )

    def _prepared(
        self,
        prompt: Prompt,
        options: GenerationOptions,
        *,
        where: str,
        continues: bool,
        shown: bool = False,
    ) -> PreparedRequest:
        limits, tokens = self._limits, prompt.tokens
        check_types(options)
        if not tokens:
            raise RequestError("the prompt has no tokens", where=where, remedy="Send some text")
        wrong = first_outside(tokens, limits.input_tokens)
        if wrong is not None:
            raise RequestError(
                f"token id {wrong} is not in the model's vocabulary",
                where=where,
                remedy=f"Ids are from 0 to {limits.input_tokens - 1}",
            )
        likeliest = self._prompt_logprobs(options.prompt_logprobs)
        unanswered = options.max_tokens == 0 and (shown or likeliest is not None)
        asked = 1 if unanswered else options.max_tokens
        output_limit = self._output_limit(len(tokens), asked, where)
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
            eos_ids=() if options.ignore_eos or unanswered else self._eos_ids,
            continues=continues,
            priority=_priority(options.priority),
            stops=NO_STOPS if unanswered else stops,
            prompt_text=prompt.text,
            prefix_boundaries=prompt.boundaries,
            prompt_logprobs=likeliest,
            shown=self.prompts.shown(prompt) if shown else None,
            unanswered=unanswered,
        )

    def _prompt_logprobs(self, asked: int | None) -> int | None:
        if asked is None:
            return None
        fault = scoring_fault(asked, self._scoring)
        if fault is not None:
            kind = UnsupportedParameterError if fault.unsupported else RequestError
            raise kind(fault.what, where="prompt_logprobs", remedy=fault.remedy)
        return operator.index(asked)

    def _output_limit(self, prompt_tokens: int, asked: int | None, where: str) -> int:
        context = self._limits.max_context_tokens
        left = context - prompt_tokens
        if left < 1:
            raise PromptTooLongError(
                f"{TOO_LONG} {prompt_tokens} tokens, and {LONGEST_CONTEXT} {context}, output"
                " included",
                where=where,
                remedy=f"Shorten the prompt to at most {context - 1} tokens",
            )
        if asked is None:
            return min(left, self._defaults.max_output_tokens or left)
        if asked < 1:
            raise RequestError(
                f"{asked} is too small",
                where="max_tokens",
                remedy="Ask for 1 or more; 0 goes only with echo or prompt_logprobs",
            )
        if asked > left:
            raise PromptTooLongError(
                f"{asked} output tokens after a prompt of {prompt_tokens} tokens make"
                f" {prompt_tokens + asked}, and {LONGEST_CONTEXT} {context}",
                where="max_tokens",
                remedy=f"Ask for at most {left}, or shorten the prompt",
            )
        return asked


def _priority(asked: int | None) -> int:
    priority = asked or 0
    if abs(priority) > PRIORITIES:
        raise RequestError(
            f"{priority} is out of range",
            where="priority",
            remedy=f"Give a value from {-PRIORITIES} to {PRIORITIES}; lower is more urgent",
        )
    return operator.index(priority)
