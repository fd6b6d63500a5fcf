"""Tools in bodies: definitions and choice in a request, calls in messages and answers.

`tools_of` turns what a client sent into what the frontend reads, or into an error that names the
field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from helios.frontend.grammar.schemas import ANNOTATIONS
from helios.frontend.tools import Tool, Tools
from helios.server.failures import invalid, not_supported
from helios.server.tool_choices import tool_choice

TOOLS_LIMIT: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_NAME_WORDS: Final = "1 to 128 of the letters a-z and A-Z, digits, and _ . : -"
# A function without parameters takes none, as of OpenAI, nor does one with an empty list of them.
_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_OF_EMPTY_LISTS: Final = frozenset(["type", "properties", "required", *ANNOTATIONS])


class FunctionDefinition(msgspec.Struct, frozen=True):
    """A function that the model may call."""

    name: Annotated[
        str,
        Meta(description=f"{_NAME_WORDS}.", extra_json_schema={"pattern": f"^{_NAME.pattern}$"}),
    ]
    description: Annotated[str | None, Meta(description="What it does, for the model to read.")] = (
        None
    )
    parameters: Annotated[
        dict[str, Any] | None,
        Meta(description="JSON schema of its arguments, an object's. Default: none."),
    ] = None
    strict: Annotated[
        bool | None, Meta(description="Keep a call's arguments to the schema. Default: false.")
    ] = None


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool: a function."""

    type: Annotated[str, Meta(description="`function`.", extra_json_schema={"enum": ["function"]})]
    function: Annotated[FunctionDefinition, Meta(description="The function.")]


class CalledFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is called, and with what."""

    arguments: Annotated[str, Meta(description="The arguments, a JSON object as text.")]
    name: Annotated[str | UnsetType, Meta(description="The function's name.")] = UNSET


class ToolCall(msgspec.Struct, frozen=True):
    """A call in an answer, or in an earlier assistant message."""

    id: Annotated[str, Meta(description="What the tool's answer repeats as `tool_call_id`.")]
    function: Annotated[CalledFunction, Meta(description="What is called.")]
    type: Annotated[Literal["function"], Meta(description="Always `function`.")] = "function"


class ToolCallDelta(msgspec.Struct, frozen=True):
    """Part of a call in a chunk: its beginning, or arguments to append."""

    index: Annotated[int, Meta(description="The call's number in the answer, from 0.")]
    function: Annotated[CalledFunction, Meta(description="A name with the first part of a call.")]
    id: Annotated[str | UnsetType, Meta(description="With the first part of a call.")] = UNSET
    type: Annotated[
        Literal["function"] | UnsetType, Meta(description="With the first part of a call.")
    ] = UNSET


def tools_of(
    definitions: Sequence[ToolDefinition], choice: object, *, parallel: bool | None
) -> Tools:
    """What a request says of tools. Raises ApiError 400."""
    if len(definitions) > TOOLS_LIMIT:
        raise invalid(
            "tools", f"tools: {len(definitions)} are too many. Send {TOOLS_LIMIT} at most"
        )
    declared: list[Tool] = []
    names: set[str] = set()
    for index, definition in enumerate(definitions):
        where = f"tools[{index}]"
        if definition.type != "function":
            raise not_supported(f"{where}.type", "Only functions are")
        function = definition.function
        if _NAME.fullmatch(function.name) is None:
            raise invalid(
                f"{where}.function.name",
                f"{where}.function.name: {function.name!r:.80} is no name. Use {_NAME_WORDS}",
            )
        if function.name in names:
            raise invalid(
                f"{where}.function.name",
                f"{where}.function.name: {function.name!r} is declared twice. Name each once",
            )
        names.add(function.name)
        parameters = function.parameters or _NO_PARAMETERS
        if parameters.get("properties") == {} and set(parameters) <= _OF_EMPTY_LISTS:
            parameters = {**parameters, "additionalProperties": False}
        if parameters.get("type", "object") != "object":
            raise invalid(
                f"{where}.function.parameters",
                f"{where}.function.parameters: arguments are an object. Set type: object",
            )
        declared.append(Tool(function.name, parameters, bool(function.strict)))
    chosen = tool_choice(choice, names)
    # Who names a function wants one call of it, as of OpenAI.
    several = parallel is not False and chosen.named is None
    return Tools(tuple(declared), chosen.calling, chosen.named, several, chosen.allowed)
