"""What a template renders to in a plain Jinja environment set up as transformers documents it.

Tests of every day compare with it; `tests/parity` compares the same conversations with
transformers itself, and `tests/data/chat_prompts.json` records what that gave.
"""

from __future__ import annotations

import copy
import functools
import json
from datetime import datetime
from typing import Any, Final

import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2.parser import Parser

from helios.frontend.markers import MarkerGuard
from helios.frontend.prompts import Prompt, PromptMaker
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from tests.frontend.chat_styles.conversations import Conversation
from tests.frontend.chat_styles.styles import Style

NOW: Final = datetime(2031, 5, 9)


class _Generation(jinja2.ext.Extension):
    tags: Final = {"generation"}  # type: ignore[misc]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


@functools.cache
def _compiled(source: str) -> jinja2.Template:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **{"ensure_ascii": False, **options}
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = NOW.strftime
    return environment.from_string(source)


def rendered(style: Style, conversation: Conversation) -> str:
    """The prompt's text, without going on with the last message."""
    messages = copy.deepcopy(conversation.messages)
    for message in messages:
        reasoning = message.get("reasoning_content")
        if reasoning is not None:
            message["thinking"] = reasoning
    return _compiled(style.template).render(
        **{
            **style.tokens,
            **conversation.variables,
            "messages": messages,
            "tools": conversation.tools or None,
            "documents": conversation.documents or None,
            "add_generation_prompt": conversation.generation_prompt,
        }
    )


def maker(style: Style, kind: str) -> PromptMaker:
    """Makes a style's prompts."""
    tokenizer = Tokenizer(style.tokenizer(kind))
    template = ChatTemplate(style.template, style.tokens, now=lambda: NOW)
    return PromptMaker(
        tokenizer=tokenizer,
        guard=MarkerGuard(tokenizer, style.tags),
        template=template,
        bos_token=None,
        max_context_tokens=1 << 20,
        input_tokens=tokenizer.id_extent,
    )


def prompt(prompts: PromptMaker, conversation: Conversation) -> Prompt:
    """The prompt of a conversation, whose calls come with arguments as JSON text."""
    messages: list[dict[str, Any]] = copy.deepcopy(conversation.messages)
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return prompts.of_messages(
        messages,
        variables=conversation.variables,
        tools=conversation.tools,
        documents=conversation.documents,
        generation_prompt=conversation.generation_prompt,
        continue_last=conversation.continued,
    )
