"""A checkpoint's chat template while preparing: renders oracle prompts, finds the envelope.

Templates are foreign code and run in Jinja's sandbox, as they do when a core is served. What
delimits messages is found by rendering known conversations and comparing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from helios.schema import contract_pb2
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from ignition.preparation.errors import CheckpointError

Messages = Sequence[dict[str, str]]
_QUESTION: Final = {"role": "user", "content": "question"}
_ANSWER: Final = {"role": "assistant", "content": "an answer to find again"}
# Templates that print today's date print this one, so that preparing twice gives equal bytes.
_DATE: Final = datetime(2025, 1, 1)


def render(
    template: str, tokens: TemplateTokens, messages: Messages, *, generation_prompt: bool
) -> str:
    """The conversation as the model reads it. Raises CheckpointError for a template that fails."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _DATE.strftime
    known = {
        "bos_token": tokens.bos_token,
        "eos_token": tokens.eos_token,
        "pad_token": tokens.pad_token,
        "unk_token": tokens.unk_token,
    }
    try:
        return environment.from_string(template).render(
            messages=list(messages),
            add_generation_prompt=generation_prompt,
            **{name: token for name, token in known.items() if token is not None},
        )
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the chat template can't be rendered: {error}",
            where="chat template",
            remedy="Check the checkpoint's template",
        ) from error


def envelope(template: str | None, tokens: TemplateTokens) -> contract_pb2.EnvelopeSyntax:
    """What opens an assistant message and what ends one; empty where a template doesn't say."""
    if template is None:
        return contract_pb2.EnvelopeSyntax()
    asked = render(template, tokens, [_QUESTION], generation_prompt=False)
    prompt = render(template, tokens, [_QUESTION], generation_prompt=True)
    answered = render(template, tokens, [_QUESTION, _ANSWER], generation_prompt=False)
    _, _, end = answered.partition(_ANSWER["content"])
    return contract_pb2.EnvelopeSyntax(
        assistant_start=prompt[len(asked) :] if prompt.startswith(asked) else "",
        message_end=end.strip(),
    )


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
