"""The fields that both generation APIs have, as types: sampling, limits, stops, an answer's form.

`bodies` adds those of each API.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from helios.frontend.prepare import CHOICES_LIMIT
from helios.kernels.catalogue import TOP_CAPACITY
from helios.scheduler.ranking import PRIORITIES

UNSUPPORTED = "Not supported yet: a value that would change the answer is refused with 400."
ACCEPTED = "Accepted for compatibility; it doesn't change the answer."


PROMPTS_LIMIT: Final = 256  # of one request
ANSWERS_LIMIT: Final = 256  # to all prompts of one request


def value_range(low: float, high: float) -> dict[str, float]:
    """A number's bounds, in a schema."""
    return {"minimum": low, "maximum": high}


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream contains besides the answer."""

    include_usage: Annotated[
        bool | None,
        Meta(description="Send a last chunk with token counts and an empty `choices` list."),
    ] = None


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that chat and plain completions share."""

    model: Annotated[str, Meta(description="The model's served id or one of its aliases.")]
    stream: Annotated[
        bool | None, Meta(description="Send the answer as server-sent events while it grows.")
    ] = None
    stream_options: Annotated[StreamOptions | None, Meta(description="Only with `stream`.")] = None
    max_tokens: Annotated[
        int | None,
        Meta(
            description="Most tokens to generate. Default: the model's recommendation, or what its"
            " context leaves after the prompt.",
            extra_json_schema={"minimum": 1},
        ),
    ] = None
    max_completion_tokens: Annotated[
        int | None,
        Meta(
            description="The newer name of `max_tokens`; give one of them.",
            extra_json_schema={"minimum": 1},
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Meta(
            description="0 takes the most likely token each time; higher values vary more."
            " Default: the model's recommendation, or 1.",
            extra_json_schema=value_range(0, 2),
        ),
    ] = None
    top_p: Annotated[
        float | None,
        Meta(
            description="Choose among the most likely tokens that together have this probability."
            " Default: the model's recommendation, or 1.",
            extra_json_schema=value_range(0, 1),
        ),
    ] = None
    top_k: Annotated[
        int | None,
        Meta(
            description="Choose among so many of the most likely tokens; 0 or -1 for all."
            " Default: the model's recommendation, or 0.",
            extra_json_schema={"minimum": -1},
        ),
    ] = None
    min_p: Annotated[
        float | None,
        Meta(
            description="Leave out tokens less likely than this share of the likeliest."
            " Default: the model's recommendation, or 0.",
            extra_json_schema=value_range(0, 1),
        ),
    ] = None
    seed: Annotated[
        int | None,
        Meta(
            description="Equal requests with equal seeds get equal answers, whatever else the"
            " server does. Default: a random seed for each request.",
            extra_json_schema=value_range(-(1 << 63), (1 << 64) - 1),
        ),
    ] = None
    priority: Annotated[
        int | None,
        Meta(
            description="Who is served first while requests compete: lower before higher. Changes"
            " when an answer comes, never what it says. Default: 0.",
            extra_json_schema=value_range(-PRIORITIES, PRIORITIES),
        ),
    ] = None
    n: Annotated[
        int | None,
        Meta(
            description="Number of answers, each as if it were asked for alone with a seed that is"
            " one higher. Default: 1.",
            extra_json_schema=value_range(1, CHOICES_LIMIT),
        ),
    ] = None
    stop: Annotated[
        str | list[str] | None,
        Meta(
            description="The text ends before the first of these strings: one, or up to four of"
            " together 4096 bytes of UTF-8. Not with stop tokens or structured output.",
            extra_json_schema={"minLength": 1, "maxItems": 4, "items": {"minLength": 1}},
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        Meta(
            description="Divides the logits of tokens that prompt or output have already, where"
            " they are positive, and multiplies them where they aren't. Default: the model's"
            " recommendation, or 1, which changes nothing.",
            extra_json_schema={"exclusiveMinimum": 0, "maximum": 100},
        ),
    ] = None
    presence_penalty: Annotated[
        float | None,
        Meta(
            description="Taken off the logit of each token that the output has already."
            " Default: the model's recommendation, or 0.",
            extra_json_schema=value_range(-2, 2),
        ),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        Meta(
            description="Taken off a token's logit for each time that the output has it already."
            " Default: the model's recommendation, or 0.",
            extra_json_schema=value_range(-2, 2),
        ),
    ] = None
    logit_bias: Annotated[
        dict[str, float] | None,
        Meta(
            description="Added to the logits of the token ids that it names, from -100 to 100; at"
            " most 512 of them.",
            extra_json_schema={
                "maxProperties": 512,
                "propertyNames": {"pattern": "^[0-9]+$"},
                "additionalProperties": value_range(-100, 100),
            },
        ),
    ] = None
    allowed_token_ids: Annotated[
        list[int] | None, Meta(description="The only tokens that may come.")
    ] = None
    bad_words: Annotated[
        list[str | list[int]] | None,
        Meta(
            description="Texts that may not come, as the tokens that they have at a beginning or"
            " after a space, or sequences of token ids; each of at most 33 tokens."
        ),
    ] = None
    min_tokens: Annotated[
        int | None,
        Meta(
            description="Tokens before which neither the end of the answer nor one of"
            " `stop_token_ids` may come. Default: 0.",
            extra_json_schema={"minimum": 0},
        ),
    ] = None
    ignore_eos: Annotated[
        bool | None, Meta(description="The answer ends at its limit or a stop alone.")
    ] = None
    response_format: Annotated[
        dict[str, Any] | None,
        Meta(
            description="The answer's form by its `type`: `text`, `json_object`, `json_schema`,"
            " `regex` with a `pattern`, `grammar` (Lark, or GBNF), or `structural_tag` with"
            " `structures` and `triggers`, or with a `format`."
        ),
    ] = None
    structured_outputs: Annotated[
        dict[str, Any] | None,
        Meta(
            description="The answer's form by one key: json, regex, choice, grammar, or"
            " structural_tag."
        ),
    ] = None
    guided_json: Annotated[Any, Meta(description="A JSON schema of the answer.")] = None
    guided_regex: Annotated[
        str | None, Meta(description="A regular expression that the whole answer matches.")
    ] = None
    guided_choice: Annotated[
        list[str] | None, Meta(description="Texts, one of which the answer is.")
    ] = None
    guided_grammar: Annotated[
        str | None, Meta(description="A grammar of the answer, Lark's or GBNF.")
    ] = None
    json_schema: Annotated[Any, Meta(description="Another name of `guided_json`.")] = None
    regex: Annotated[str | None, Meta(description="Another name of `guided_regex`.")] = None
    ebnf: Annotated[str | None, Meta(description="Another name of `guided_grammar`.")] = None
    grammar: Annotated[str | None, Meta(description="Another name of `guided_grammar`.")] = None
    structural_tag: Annotated[
        Any, Meta(description="`response_format` of that type, or its text.")
    ] = None
    stop_token_ids: Annotated[
        list[int] | None, Meta(description="The answer ends before one of these tokens.")
    ] = None
    stop_token_sequences: Annotated[
        list[list[int]] | None,
        Meta(
            description="The answer ends before the first of these sequences of tokens: at most 16"
            " of at most 64 tokens."
        ),
    ] = None
    prompt_logprobs: Annotated[
        int | None,
        Meta(
            description="Return each prompt token's log-probability (natural, of the raw logits)"
            " and those of so many of the likeliest in its place. Nothing of it is then reused.",
            extra_json_schema=value_range(0, TOP_CAPACITY),
        ),
    ] = None
    logprobs_mode: Annotated[
        str | None, Meta(description=f"`raw_logprobs` alone. {UNSUPPORTED}")
    ] = None
    user: Annotated[Any, Meta(description=ACCEPTED)] = None
    metadata: Annotated[Any, Meta(description=ACCEPTED)] = None
    store: Annotated[Any, Meta(description=ACCEPTED)] = None
    service_tier: Annotated[Any, Meta(description=ACCEPTED)] = None
    safety_identifier: Annotated[Any, Meta(description=ACCEPTED)] = None
    prompt_cache_key: Annotated[Any, Meta(description=ACCEPTED)] = None
    prompt_cache_retention: Annotated[Any, Meta(description=ACCEPTED)] = None
