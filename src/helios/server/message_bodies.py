"""Messages of a chat request as types. `bodies` has the rest of the request."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from helios.server.tool_bodies import ToolCall

_ABSENT = Meta(
    description="Not supported yet: only null and an empty list are.",
    extra_json_schema={"enum": [None, []]},
)


class ContentPart(msgspec.Struct, frozen=True):
    """A piece of a message."""

    type: Annotated[
        str,
        Meta(description="`text`; other kinds are refused.", extra_json_schema={"enum": ["text"]}),
    ]
    text: Annotated[str | None, Meta(description="The text.")] = None


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Annotated[
        str,
        Meta(
            description="`system`, `developer`, `user`, `assistant` or `tool`, as the model"
            " allows.",
            extra_json_schema={"enum": ["system", "developer", "user", "assistant", "tool"]},
        ),
    ]
    content: Annotated[
        str | list[ContentPart] | None,
        Meta(description="The text; several text parts are joined by line breaks."),
    ] = None
    name: Annotated[
        str | None, Meta(description="The speaker's name, for templates that use it.")
    ] = None
    reasoning_content: Annotated[
        str | None,
        Meta(description="Reasoning of an earlier assistant message, for templates that use it."),
    ] = None
    reasoning: Annotated[str | None, Meta(description="Another name of `reasoning_content`.")] = (
        None
    )
    tool_calls: Annotated[
        list[ToolCall] | None, Meta(description="The calls of an earlier assistant message.")
    ] = None
    tool_call_id: Annotated[
        str | None, Meta(description="With role `tool`: the id of the call that it answers.")
    ] = None
    function_call: Annotated[Any, _ABSENT] = None
    audio: Annotated[Any, _ABSENT] = None
    refusal: Annotated[
        Any, Meta(description="Accepted for compatibility; it doesn't change the answer.")
    ] = None
