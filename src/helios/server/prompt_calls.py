"""What `/tokenize`, `/detokenize` and `/v1/render` do: a validated body as work for a preparation
slot. `prompt_routes` handles every call alike; this module knows the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import msgspec

from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.prepare import PreparedRequest, choices
from helios.frontend.prompts import Prompt, PromptMaker
from helios.server.calls import Call, chat_call, completion_call
from helios.server.failures import invalid, not_supported
from helios.server.json_bodies import converted, json_object, unknown_within
from helios.server.lifecycle import ServedModel
from helios.server.prompt_bodies import (
    Detokenized,
    DetokenizeRequest,
    Rendered,
    RenderedSampling,
    Tokenized,
    TokenizeRequest,
)
from helios.server.tool_bodies import tools_of
from helios.server.unsupported import is_unsupported, unsupported_fields
from helios.server.validation import chat_messages, check_messages, unknown_in_messages

# Fields of a tokenize body that mean something beside only one of `prompt` and `messages`.
_OF_MESSAGES = (
    "add_generation_prompt",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "tools",
)


@dataclass(frozen=True, slots=True)
class PromptCall:
    """A body as work: `work` runs in a preparation slot and may raise RequestError. `model` None
    takes the one that there is; `field_names` are the client's names of options where they
    differ, `ignored` body fields without meaning here."""

    model: str | None
    ignored: tuple[str, ...]
    work: Callable[[ServedModel], msgspec.Struct]
    field_names: Mapping[str, str] = field(default_factory=dict)


def tokenize_call(data: bytes) -> PromptCall:
    """A tokenize body as a call. Raises ApiError 400."""
    raw = json_object(data)
    request = converted(raw, TokenizeRequest)
    ignored = _unknown(raw, TokenizeRequest)
    if (request.prompt is None) == (request.messages is None):
        given = "both are there. Leave out" if request.messages is not None else "none is. Add"
        raise invalid("prompt", f"prompt, messages: {given} one of them", code="missing_field")
    if request.messages is None:
        ignored |= {name for name in _OF_MESSAGES if raw.get(name) is not None}
    else:
        ignored |= unknown_in_messages(raw["messages"])
        check_messages(request.messages)
        if request.add_special_tokens:
            raise not_supported(
                "add_special_tokens",
                "The model's template says which special tokens a conversation has. Leave it out",
            )

        tools_of(request.tools or (), None, parallel=None)
        if request.continue_final_message and request.add_generation_prompt:
            raise invalid(
                "add_generation_prompt",
                "add_generation_prompt: the last message is continued. Leave out one of"
                " add_generation_prompt and continue_final_message",
            )

    def work(model: ServedModel) -> Tokenized:
        maker = model.frontend.preparer.prompts
        tokens = _prompt(request, raw, maker).tokens
        spellings = maker.spellings(tokens) if request.return_token_strs else None
        return Tokenized(len(tokens), maker.max_context_tokens, tokens, spellings)

    return PromptCall(request.model, tuple(sorted(ignored)), work)


def _prompt(request: TokenizeRequest, raw: Mapping[str, Any], maker: PromptMaker) -> Prompt:
    if request.messages is None:
        assert request.prompt is not None
        return maker.of_text(request.prompt, special_tokens=request.add_special_tokens is not False)
    return maker.of_messages(
        chat_messages(request.messages),
        variables=request.chat_template_kwargs,
        tools=raw.get("tools") or (),
        documents=request.documents or (),
        continue_last=bool(request.continue_final_message),
        generation_prompt=request.add_generation_prompt is not False,
    )


def detokenize_call(data: bytes) -> PromptCall:
    """A detokenize body as a call. Raises ApiError 400."""
    raw = json_object(data)
    request = converted(raw, DetokenizeRequest)

    def work(model: ServedModel) -> Detokenized:
        return Detokenized(model.frontend.preparer.prompts.text_of(request.tokens))

    return PromptCall(request.model, tuple(sorted(_unknown(raw, DetokenizeRequest))), work)


def render_call(data: bytes) -> PromptCall:
    """A chat or completions body as a call that only renders it. Raises ApiError 400, as those
    endpoints do."""
    raw = json_object(data)
    call = completion_call(data) if "messages" not in raw and "prompt" in raw else chat_call(data)
    seeded = raw.get("seed") is not None

    def work(model: ServedModel) -> Rendered:
        prepared, *others = call.prepare(model.frontend.preparer)
        if others:
            raise RequestError(
                f"{1 + len(others)} prompts can't be rendered at once",
                where="prompt",
                remedy="Send one a request",
            )
        choices(prepared, call.choices)  # so many must be possible
        return _rendered(prepared, call, model, seeded=seeded)

    return PromptCall(call.model, call.ignored, work, call.field_names)


def _rendered(
    prepared: PreparedRequest, call: Call, model: ServedModel, *, seeded: bool
) -> Rendered:
    sampling = prepared.sampling
    tokens = prepared.prompt_tokens
    text = prepared.prompt_text
    if text is None:
        text = model.frontend.preparer.prompts.text_of(tokens, where="prompt")
    allowed = sampling.allowed_tokens
    return Rendered(
        model=model.served_id,
        prompt=text,
        prompt_token_ids=tokens,
        prompt_tokens=len(tokens),
        max_tokens=prepared.output_limit,
        n=call.choices,
        sampling=RenderedSampling(
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            seed=sampling.seed if seeded else None,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            min_tokens=sampling.min_tokens,
            logit_bias={str(token): bias for token, bias in sampling.logit_bias},
            allowed_token_ids=None if allowed is None else list(allowed),
            bad_words=[list(word) for word in sampling.bad_words],
            top_logprobs=sampling.top_logprobs,
        ),
        eos_token_ids=list(prepared.eos_ids),
        stop=list(prepared.stops.strings),
        stop_token_sequences=[list(sequence) for sequence in prepared.stops.sequences],
        priority=prepared.priority,
        constrained=prepared.grammar is not None,
    )


def _unknown(raw: Mapping[str, Any], kind: type[msgspec.Struct]) -> set[str]:
    """Names of fields without meaning here. Raises ApiError 400 for those that would change the
    answer and aren't supported."""
    for name in unsupported_fields(raw):
        if name not in kind.__struct_fields__:
            raise not_supported(name, "Leave it out")
    return {name for name in unknown_within(raw, kind) if not is_unsupported(name)}
