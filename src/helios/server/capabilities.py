"""What a served model can do, as `/v1/models` tells: read off its contract, its programs and the
table of what this server doesn't take yet. No model is known here.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from helios.contract.enums import Operation, ReasoningParser, ToolParser
from helios.contract.model import PreparedContract
from helios.kernels.catalogue import TOP_CAPACITY
from helios.runtime.grammar_rules import takes_grammars
from helios.runtime.sampling_rules import SamplingRules, sampling_rules
from helios.server.lifecycle import ServedModel
from helios.server.unsupported import is_unsupported

# Request fields that every core's programs apply, and those of each rule.
_ALWAYS: Final = ("temperature", "top_k", "top_p", "min_p", "seed", "ignore_eos")
_BY_RULE: Final = {
    "penalties": ("repetition_penalty", "presence_penalty", "frequency_penalty"),
    "logit_bias": ("logit_bias",),
    "allowed_tokens": ("allowed_token_ids",),
    "bad_words": ("bad_words",),
    "min_tokens": ("min_tokens",),
}


class Capabilities(msgspec.Struct, frozen=True):
    """What can be asked of a model. Where both the model and this server have to be able to do
    something, both are."""

    chat: Annotated[bool, Meta(description="It has a chat template, which chat completions need.")]
    input_modalities: Annotated[list[str], Meta(description="What prompts may contain.")]
    tools: Annotated[
        bool,
        Meta(description="Requests may have `tools`; calls that are certain need grammars, too."),
    ]
    tool_syntax: Annotated[
        str | None,
        Meta(
            description="How the model writes tool calls, as its contract says; null if it can't."
        ),
    ]
    reasoning: Annotated[bool, Meta(description="Reasoning is told apart from the answer.")]
    reasoning_syntax: Annotated[
        str | None,
        Meta(description="How the model writes reasoning, as its contract says; null if it can't."),
    ]
    structured_output: Annotated[
        bool,
        Meta(
            description="Its programs keep answers to grammars: requests may ask for an answer's"
            " form (`response_format`, …), calls (`tool_choice: required`) and thinking budgets."
        ),
    ]
    speculative_width: Annotated[
        int,
        Meta(description="Most tokens that a step of a request verifies; 0 without speculation."),
    ]
    sampling: Annotated[
        list[str],
        Meta(description="Request fields on the choice of tokens that its programs apply."),
    ]
    logprobs: Annotated[bool, Meta(description="Answers may have log-probabilities.")]
    top_logprobs: Annotated[
        int, Meta(description="How many of the likeliest tokens an answer may show at most.")
    ]
    prompt_logprobs: Annotated[
        bool, Meta(description="The prompt's own tokens may have log-probabilities.")
    ]
    prefix_reuse: Annotated[
        bool,
        Meta(description="What prompts have in common with earlier ones isn't computed again."),
    ]


def capabilities(model: ServedModel) -> Capabilities:
    """Those of the model with the options that it is served with."""
    contract = model.frontend.contract
    frontend = contract.model.frontend
    rules = sampling_rules(contract.model.graphs)
    tools = _syntax(frontend.tool_parser, ToolParser.NONE)
    reasoning = _syntax(frontend.reasoning_parser, ReasoningParser.NONE)
    images = contract.model.vision is not None and not is_unsupported("images")
    return Capabilities(
        chat=model.frontend.preparer.prompts.template is not None,
        input_modalities=["text", "image"] if images else ["text"],
        tools=tools is not None,
        tool_syntax=tools,
        reasoning=reasoning is not None,
        reasoning_syntax=reasoning,
        structured_output=takes_grammars(contract.model.graphs),
        speculative_width=model.ready.speculative_width,
        sampling=list(_sampling(rules)),
        logprobs=True,
        top_logprobs=TOP_CAPACITY if rules.top_logprobs else 0,
        prompt_logprobs=_scores(contract) and not is_unsupported("prompt_logprobs"),
        prefix_reuse=model.ready.prefix_reuse,
    )


def _syntax(parser: ToolParser | ReasoningParser, none: ToolParser | ReasoningParser) -> str | None:
    return None if parser is none else parser.name.lower()


def _sampling(rules: SamplingRules) -> tuple[str, ...]:
    applied = [fields for rule, fields in _BY_RULE.items() if getattr(rules, rule)]
    return (*_ALWAYS, *(field for fields in applied for field in fields))


def _scores(contract: PreparedContract) -> bool:
    return any(graph.operation is Operation.SCORED_PREFILL for graph in contract.model.graphs)
