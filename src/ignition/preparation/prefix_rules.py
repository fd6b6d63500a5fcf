"""Which prefix boundaries a core declares: roles at whose messages a prompt can be cut for reuse.

A rule is worth declaring where the template renders a conversation the same up to such a message,
whatever stands in it: templates that move a message forward, or count from the end, may not. That
is tried with known conversations. `chat_syntax` is the caller; what Helios makes of rules is in
docs/prefix-cache.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from ignition.preparation import chat
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from ignition.preparation.errors import CheckpointError

_ARGUMENTS: Final = {"city": "a town to find again"}
_TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "says it",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
_ASKED: Final = [
    {"role": "user", "content": "a question to find again"},
    {"role": "assistant", "content": "an answer to find again"},
]
_CALL: Final = {
    "id": "call00001",  # templates want nine letters and digits
    "type": "function",
    "function": {"name": "weather", "arguments": _ARGUMENTS},
}
# For each role: what is before a message of it, what has to be in the part that all such prompts
# share, the message but for its text and role, and tools.
_CONVERSATIONS: Final[Sequence[tuple[str, list[Any], str, dict[str, str], list[Any] | None]]] = (
    ("user", _ASKED, "an answer to find again", {}, None),
    (
        "tool",
        [_ASKED[0], {"role": "assistant", "content": "", "tool_calls": [_CALL]}],
        "a town to find again",
        {"tool_call_id": "call00001", "name": "weather"},
        _TOOLS,
    ),
)
_TEXTS: Final = ("x and more", "y and other things")


def boundary_roles(template: str, tokens: TemplateTokens) -> tuple[str, ...]:
    """Roles at whose messages this template's prompts can be cut."""
    found = []
    for role, before, needed, more, tools in _CONVERSATIONS:
        message = {"role": role, **more}
        try:
            one, other = (
                chat.render(
                    template,
                    tokens,
                    [*before, {**message, "content": text}],
                    generation_prompt=True,
                    tools=tools,
                )
                for text in _TEXTS
            )
        except CheckpointError:
            continue
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        if needed in "".join(mine for mine, _ in pairs):
            found.append(role)
    return tuple(found)
