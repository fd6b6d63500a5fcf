"""From the bytes of a body to a typed request, or to an error that names the field.

Three questions in turn: is it JSON of the right types, does it ask for something that this
server would have to ignore although it changes the answer, and which fields does nobody know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from helios.dataclass import dataclass
from helios.frontend.prepare import CHOICES_LIMIT
from helios.kernels.catalogue import TOP_CAPACITY
from helios.server.bodies import ChatMessage, ChatRequest, CompletionRequest, ContentPart
from helios.server.failures import invalid, not_supported
from helios.server.generation_bodies import (
    ANSWERS_LIMIT,
    PROMPTS_LIMIT,
    GenerationRequest,
    StreamOptions,
)
from helios.server.json_bodies import converted, json_object, unknown_within
from helios.server.unsupported import (
    chat_fields,
    is_chat_field,
    is_unsupported,
    unsupported_fields,
)

# Fields that give an answer's form, and the values that don't.
STRUCTURED_OUTPUT: Final[Mapping[str, Any]] = {
    "response_format": {"type": "text"},
    "structured_outputs": None,
    "guided_json": None,
    "guided_regex": None,
    "guided_choice": None,
    "guided_grammar": None,
    "json_schema": None,
    "grammar": None,
    "regex": None,
    "ebnf": None,
    "structural_tag": None,
}
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")

RequestType = TypeVar("RequestType", bound=GenerationRequest)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[RequestType]):
    """A valid body, the names of its fields that have no meaning here, and what was sent."""

    request: RequestType
    ignored: tuple[str, ...]
    raw: Mapping[str, Any]


def decode_chat(data: bytes) -> Decoded[ChatRequest]:
    """A chat body. Raises ApiError 400 naming the field at fault."""
    decoded = _decode(data, ChatRequest)
    request = decoded.request
    check_messages(request.messages)
    _check_top_logprobs("top_logprobs", request.top_logprobs)
    if request.echo:
        raise not_supported("echo", "Use /v1/completions")
    if request.top_logprobs and not request.logprobs:
        raise invalid("top_logprobs", "top_logprobs needs logprobs: true. Set it or leave it out")
    if request.return_token_timestamps and not request.return_token_ids:
        raise invalid(
            "return_token_timestamps",
            "return_token_timestamps needs return_token_ids: true. Set it or leave both out",
        )
    return decoded


def decode_completion(data: bytes) -> Decoded[CompletionRequest]:
    """A completions body. Raises ApiError 400 naming the field at fault."""
    decoded = _decode(data, CompletionRequest)
    request = decoded.request
    _check_top_logprobs("logprobs", request.logprobs)
    if request.top_logprobs:
        raise not_supported("top_logprobs", "Send the number as logprobs")
    observations = ("return_token_ids", "return_token_timestamps")
    asked = [field for field in observations if getattr(request, field)]
    for field in (*asked, *chat_fields(decoded.raw)):
        raise not_supported(field, "Use /v1/chat/completions")
    return decoded


def completion_prompts(request: CompletionRequest) -> list[str | list[int]]:
    """The prompts of a completions request, each text or token ids. Raises ApiError 400 where they
    are too many or of no kind."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    prompts: list[str | list[int]] = [item for item in prompt if not isinstance(item, int)]
    if not prompts:
        return [[item for item in prompt if isinstance(item, int)]]
    if len(prompts) < len(prompt):
        raise invalid(
            "prompt",
            "prompt: mixes token ids with whole prompts. Send a list of ids, or a list of texts and"
            " lists of ids",
        )
    if len(prompts) > PROMPTS_LIMIT:
        raise invalid(
            "prompt",
            f"prompt: {len(prompts)} prompts in one request. Send at most {PROMPTS_LIMIT}",
        )
    answers = len(prompts) * (request.n or 1)
    if 1 <= (request.n or 1) <= CHOICES_LIMIT and answers > ANSWERS_LIMIT:
        raise invalid(
            "n",
            f"n: {request.n} answers to each of {len(prompts)} prompts are {answers}. Ask for at"
            f" most {ANSWERS_LIMIT} in one request",
        )
    return prompts


def lists_prompts(request: CompletionRequest) -> bool:
    """Whether the prompts came as a list, so that each has a place in it."""
    return any(not isinstance(item, int) for item in request.prompt) and not isinstance(
        request.prompt, str
    )


def chat_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The messages as the frontend takes them."""
    found = []
    for message in messages:
        builtin = msgspec.to_builtins(message)
        absent = [name for name, value in builtin.items() if value is None and name != "content"]
        for name in (*absent, "refusal"):
            builtin.pop(name, None)
        found.append(builtin)
    return found


def _decode(data: bytes, kind: type[RequestType]) -> Decoded[RequestType]:
    raw = json_object(data)
    request = converted(raw, kind)
    _check_combinations(raw)
    for field in unsupported_fields(raw):
        raise not_supported(field, "Leave it out")
    _check_special_tokens(raw, chat=kind is ChatRequest)
    _check_shared(request)
    return Decoded(request, tuple(sorted(_unknown(raw, kind))), raw)


def _unknown(raw: Mapping[str, Any], kind: type[GenerationRequest]) -> set[str]:
    """Names of fields that have no meaning here; those within messages are named together."""
    known = set(kind.__struct_fields__)
    names = {name for name in raw if name not in known and not is_unsupported(name)}
    if kind is not ChatRequest:
        names = {name for name in names if not is_chat_field(name)}
    else:
        names |= unknown_in_messages(raw["messages"])
    options = raw.get("stream_options")
    if options is not None:
        names |= unknown_within(options, StreamOptions, "stream_options.")
    return names


def unknown_in_messages(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Names of messages' fields that have no meaning here."""
    names: set[str] = set()
    for message in messages:
        names |= unknown_within(message, ChatMessage, "messages[].")
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                names |= unknown_within(part, ContentPart, "messages[].content[].")
    return names


def _check_combinations(raw: Mapping[str, Any]) -> None:
    """Fields that exclude each other, whether or not this server has both."""
    for field, neutral in STRUCTURED_OUTPUT.items():
        if raw.get("stop") and raw.get(field) not in (None, neutral):
            raise invalid(
                "stop", f"stop: strings can't be combined with {field}. Leave out one of them"
            )
    observed = raw.get("return_token_ids") or raw.get("return_token_timestamps")
    if observed and (raw.get("n") or 1) != 1:
        raise invalid(
            "n", "n: tokens are observed of one answer alone. Send 1, or leave out return_token_ids"
        )


def _check_special_tokens(raw: Mapping[str, Any], *, chat: bool) -> None:
    """vLLM's field: a conversation's special tokens are the template's, a text has the model's."""
    asked = raw.get("add_special_tokens")
    if asked is not None and asked is chat:
        raise not_supported("add_special_tokens", "Leave it out")


def _check_top_logprobs(field: str, asked: int | None) -> None:
    if asked is not None and not 0 <= asked <= TOP_CAPACITY:
        raise invalid(
            field, f"{field}: {asked} is out of range. Give a value from 0 to {TOP_CAPACITY}"
        )


def _check_shared(request: GenerationRequest) -> None:
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise invalid(
            "max_tokens", "max_tokens and max_completion_tokens are one setting. Give one of them"
        )
    _check_top_logprobs("prompt_logprobs", request.prompt_logprobs)
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options", "stream_options needs stream: true. Set it or leave it out")


def check_messages(messages: Sequence[ChatMessage]) -> None:
    """Raises ApiError 400 naming what of a conversation no template here could read."""
    if not messages:
        raise invalid("messages", "messages is empty. Send at least one message")
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message.role == "function":
            raise not_supported(f"{where}.role", "Use tool, and tool_call_id")
        if message.role not in _ROLES:
            raise invalid(
                f"{where}.role",
                f"{where}.role: {message.role!r} is no role. Use one of {', '.join(_ROLES)}",
            )
        for field, role in (("tool_calls", "assistant"), ("tool_call_id", "tool")):
            if getattr(message, field) and message.role != role:
                raise invalid(
                    f"{where}.{field}", f"{where}.{field}: only messages with role {role} have it"
                )
        for field in ("function_call", "audio"):
            if getattr(message, field) not in (None, []):
                raise not_supported(f"{where}.{field}", "Leave it out")
        if message.content is None and message.role != "assistant":
            raise invalid(f"{where}.content", f"{where}.content is missing. Add text")
        if isinstance(message.content, list):
            for number, part in enumerate(message.content):
                if part.type != "text":
                    raise not_supported(
                        f"{where}.content[{number}].type", "This model reads text parts"
                    )
                if part.text is None:
                    field = f"{where}.content[{number}].text"
                    raise invalid(field, f"{field} is missing. Add it", code="missing_field")
