"""A conversation whose last message the answer goes on with: its prompt ends inside of it.

The message is rendered with a mark behind its last text, and what stands before that is the prompt.
A message that has only reasoning so far is gone on with in there. `prompts` is the caller.
"""

from __future__ import annotations

from typing import Any, Final

from helios.errors import RequestError
from helios.frontend.conversation import REASONING
from helios.frontend.origins import added, method, plain

# A noncharacter that clients' text can't have, and a space that says whether the template cuts
# white space off.
_LAST: Final = "\ufdd3"
_MARK: Final = _LAST + " "


def mark_last(messages: list[dict[str, Any]]) -> str:
    """Puts a mark behind the last message's text, or behind its reasoning where it has none; the
    field that it is in. Raises RequestError where there is nothing to go on with."""
    where = f"messages[{max(0, len(messages) - 1)}]"
    last = messages[-1] if messages else {}
    if _mark_content(last):
        return f"{where}.content"
    reasoning = [name for name in REASONING if last.get(name)]
    if reasoning and last.get("role") == "assistant":
        if last.get("tool_calls"):
            raise RequestError(
                "its reasoning can't go on before calls that it has made already",
                where=f"{where}.tool_calls",
                remedy="Leave them out, or leave out continue_final_message",
            )
        for name in reasoning:
            last[name] = added(last[name], _MARK)
        return f"{where}.reasoning_content"
    raise RequestError(
        "has no text to continue, and no reasoning",
        where=f"{where}.content",
        remedy="Let the last message begin the answer, or leave out continue_final_message",
    )


def _mark_content(last: dict[str, Any]) -> bool:
    """Marks the last text of a message's content; whether there is any."""
    content = last.get("content")
    if isinstance(content, list):
        for index in range(len(content) - 1, -1, -1):
            part = content[index]
            if isinstance(part.get("text"), str) and part["text"]:
                marked = [{**part, "text": added(part["text"], _MARK)}]
                last["content"] = content[:index] + marked + content[index + 1 :]
                return True
    elif isinstance(content, str) and content:
        last["content"] = added(content, _MARK)
        return True
    return False


def up_to_mark(rendered: str, field: str) -> str:
    """What stands before the mark, without the white space at its end where the template cuts it
    off. Raises RequestError where the template has left out the `field` that was marked."""
    at = plain(rendered).rfind(_LAST)
    if at < 0:
        raise RequestError(
            "the model's chat template doesn't write it at the end of a conversation",
            where=field,
            remedy="Leave out continue_final_message",
        )
    before = rendered[:at]
    return before if rendered[at:].startswith(_MARK) else str(method(before, "rstrip"))
