"""A checkpoint's chat template while preparing: renders oracle prompts, finds the envelope.

Templates are foreign code and run in Helios's bounded sandbox, as they do when a core is served.
What delimits messages is found by rendering known conversations and comparing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from helios.errors import CoreError, HeliosError, RequestError
from helios.frontend.template import ChatTemplate
from helios.schema import contract_pb2
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from ignition.preparation.errors import CheckpointError
from ignition.preparation.syntaxes import THINK_BRACKETS, THINK_TAGS

Messages = Sequence[dict[str, Any]]
_QUESTION: Final = {"role": "user", "content": "question"}
_ANSWER: Final = {"role": "assistant", "content": "an answer to find again"}
# Templates that print today's date print this one, so that preparing twice gives equal bytes.
_DATE: Final = datetime(2025, 1, 1)


def render(
    template: str,
    tokens: TemplateTokens,
    messages: Messages,
    *,
    generation_prompt: bool,
    tools: list[Any] | None = None,
) -> str:
    """The conversation as the model reads it. Raises CheckpointError for a template that fails."""
    try:
        return _compiled(template, tokens).render(
            [dict(message) for message in messages],
            generation_prompt=generation_prompt,
            tools=tools,
        )
    except RequestError as error:
        raise _failing(error) from error


def reads_tools(template: str, tokens: TemplateTokens) -> bool:
    """Whether the template shows the tools of a conversation. Raises CheckpointError for a
    template that fails."""
    return _compiled(template, tokens).reads_tools


def _compiled(template: str, tokens: TemplateTokens) -> ChatTemplate:
    known = {
        "bos_token": tokens.bos_token,
        "eos_token": tokens.eos_token,
        "pad_token": tokens.pad_token,
        "unk_token": tokens.unk_token,
    }
    present = {name: token for name, token in known.items() if token is not None}
    try:
        return ChatTemplate(template, present, now=lambda: _DATE)
    except CoreError as error:
        raise _failing(error) from error


def _failing(error: HeliosError) -> CheckpointError:
    return CheckpointError(
        f"the chat template can't be rendered: {error.what}",
        where="chat template",
        remedy="Check the checkpoint's template",
    )


def envelope(template: str | None, tokens: TemplateTokens) -> contract_pb2.EnvelopeSyntax:
    """What opens an assistant message and what ends one; empty where a template doesn't say.
    Reasoning that a generation prompt opens or closes at once is the message's own."""
    if template is None:
        return contract_pb2.EnvelopeSyntax()
    asked = render(template, tokens, [_QUESTION], generation_prompt=False)
    prompt = render(template, tokens, [_QUESTION], generation_prompt=True)
    answered = render(template, tokens, [_QUESTION, _ANSWER], generation_prompt=False)
    _, _, end = answered.partition(_ANSWER["content"])
    start = prompt[len(asked) :] if prompt.startswith(asked) else ""
    for syntax in (THINK_TAGS, THINK_BRACKETS):
        for tag in (syntax.open, syntax.close):
            start = start.partition(tag)[0]
    return contract_pb2.EnvelopeSyntax(
        assistant_start=start,
        message_end=end.strip(),
    )
