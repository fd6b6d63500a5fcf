"""Where a conversation's prompt can be cut so that other conversations share what is before.

A contract's rules name roles. A prompt has a boundary at a message of such a role: up to there it
is also the prompt of every conversation that goes on otherwise with this message. Where a rule
needs the generation prompt, the part before is what the message was generated after: the prompt
that an earlier request had, if the template still renders it so now that others follow. Templates
that drop old reasoning, or open reasoning that they don't keep, have no such boundary. `prompts`
is the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from helios.contract.model import PrefixBoundaryRule
from helios.errors import RequestError

# Each costs a rendering and its tokens, so not every turn of a long conversation is looked at: the
# first, after what conversations share, and the last ones.
LIMIT: Final = 8

_Messages = Sequence[Mapping[str, Any]]


def candidates(messages: _Messages, rules: Iterable[PrefixBoundaryRule]) -> list[tuple[int, bool]]:
    """Messages, by their number, at which there may be a boundary, each with whether the
    generation prompt belongs to what is before it."""
    found = sorted(
        {
            (index, rule.needs_generation_prompt)
            for rule in rules
            for index, message in enumerate(messages)
            if message.get("role") in rule.roles and (index or not rule.needs_generation_prompt)
        }
    )
    return found if len(found) <= LIMIT else [found[0], *found[1 - LIMIT :]]


def boundaries(
    tokens: Sequence[int],
    messages: _Messages,
    rules: Iterable[PrefixBoundaryRule],
    encoded: Callable[[_Messages, bool], Sequence[int]],
) -> tuple[int, ...]:
    """The boundaries of a prompt, as counts of its first tokens, ascending. `encoded` gives the
    prompt of messages, with the generation prompt or not; it may refuse a part of a conversation
    with RequestError: then there is no boundary."""
    found = set()
    for index, generated in candidates(messages, rules):
        try:
            if generated:
                before = encoded(messages[:index], True)
                shared = len(before) if list(tokens[: len(before)]) == list(before) else 0
            else:
                other = encoded([*messages[:index], _otherwise(messages[index])], False)
                pairs = zip(tokens, other, strict=False)
                shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        except RequestError:
            continue
        if 0 < shared < len(tokens):
            found.add(shared)
    return tuple(sorted(found))


def _otherwise(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message in this one's place, with other text from the first character on."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    other = "y" if text.lstrip().startswith("x") else "x"
    changed = {"type": "text", "text": other}
    return {
        **{name: value for name, value in message.items() if name in ("role", "tool_call_id")},
        "content": [changed] if isinstance(content, list) else other,
    }
