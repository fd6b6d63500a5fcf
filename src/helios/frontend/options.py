"""What a client may say about generation, as plain values, and whether they are of their types.

Whether they are in range, and what an unset one means, `sampling` and `prepare` decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Real
from typing import Any, Final, SupportsIndex

from helios.dataclass import dataclass
from helios.errors import RequestError


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What a client may say about generation. None leaves a value to the contract's default, a
    seed to chance and the output limit to what the context leaves. `priority` is lower where the
    request is more urgent, 0 by default; it changes no token.

    `logit_bias` adds to the logits of the ids that it names; `allowed_token_ids` are the only ids
    that may come; `bad_words` are texts or sequences of ids that may not. Before `min_tokens`
    tokens the output doesn't end; with `ignore_eos` it ends at its limit alone. `top_logprobs` asks
    for so many of the likeliest tokens wherever one is sampled. `prompt_logprobs` asks for the
    logprob of each prompt token but the first, and for so many of the likeliest in its place; then
    `max_tokens` may be 0. The text ends before the first of
    the strings in `stop`, the tokens before one of `stop_token_ids` or `stop_token_sequences`;
    their limits are in `stop_checks`.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    priority: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    logit_bias: Mapping[int, float] | Mapping[str, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str | Sequence[int]] | None = None
    top_logprobs: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    stop_token_sequences: Sequence[Sequence[int]] | None = None
    prompt_logprobs: int | None = None


def check_types(options: GenerationOptions) -> None:
    """Refuses values that aren't of their field's type, which Python lets a caller give. Raises
    RequestError naming the field."""
    for field in fields(options):
        value = getattr(options, field.name)
        fits, kind = _KINDS.get(field.name, (_is_real, "a number"))
        if value is not None and not fits(value):
            raise RequestError(f"{value!r:.40} is not {kind}", where=field.name)


def _is_whole(value: Any) -> bool:
    return isinstance(value, SupportsIndex) and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def _are_whole(value: Any) -> bool:
    return _is_list(value) and all(map(_is_whole, value))


def _are_words(value: Any) -> bool:
    return _is_list(value) and all(isinstance(word, str) or _are_whole(word) for word in value)


def _are_biases(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        (_is_whole(token) or isinstance(token, str)) and _is_real(bias)
        for token, bias in value.items()
    )


def _are_sequences(value: Any) -> bool:
    return _is_list(value) and all(map(_are_whole, value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, str) or (
        _is_list(value) and all(isinstance(text, str) for text in value)
    )


_WHOLE: Final = (_is_whole, "an integer")
_KINDS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "max_tokens": _WHOLE,
    "top_k": _WHOLE,
    "seed": _WHOLE,
    "priority": _WHOLE,
    "min_tokens": _WHOLE,
    "top_logprobs": _WHOLE,
    "prompt_logprobs": _WHOLE,
    "ignore_eos": (lambda value: isinstance(value, bool), "true or false"),
    "logit_bias": (_are_biases, "an object of token ids and numbers"),
    "allowed_token_ids": (_are_whole, "a list of token ids"),
    "bad_words": (_are_words, "a list of texts"),
    "stop": (_are_texts, "a text or a list of texts"),
    "stop_token_ids": (_are_whole, "a list of token ids"),
    "stop_token_sequences": (_are_sequences, "a list of lists of token ids"),
}
