"""A session with tools and one answer of a form: what is asked, and what each library makes of it.

`adapters` say it in their library's own words; here is what is common, and plain HTTP's way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tests.clients.sessions import MODEL, At, Http

QUESTION: Final = "What is 12 times 34?"
RESULT: Final = "408"
PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "The product of two whole numbers.",
        "parameters": PARAMETERS,
    },
}
OPTIONS: Final[dict[str, Any]] = {"model": MODEL, "max_tokens": 64, "temperature": 0.0}
CALLING: Final[dict[str, Any]] = {
    "tools": [TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}
FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green", "blue"]},
        "count": {"type": "integer"},
    },
    "required": ["colour", "count"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Session:
    """A call as it came, and the answer that its result led to."""

    name: str
    arguments: dict[str, Any]
    answer: str


class ToolClient(Protocol):
    """A library that calls tools and asks for answers of a form."""

    def tool_session(self, at: At) -> Session:
        """A call, its result, an answer."""

    def streamed_call(self, at: At) -> tuple[str, dict[str, Any]]:
        """The same call out of a stream, as the library puts it together."""

    def structured(self, at: At) -> list[dict[str, Any]]:
        """Answers of FORM, in each way that the library has."""


class PlainHttp:
    """What the libraries are compared with."""

    def __init__(self, at: At) -> None:
        self._http = Http(at).http

    def _message(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        body = {**OPTIONS, "messages": messages, **more}
        response = self._http.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        return dict(response.json()["choices"][0]["message"])

    def tool_session(self) -> Session:
        """As `ToolClient` says."""
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        said = self._message(messages, **CALLING)
        (call,) = said["tool_calls"]
        messages += [said, {"role": "tool", "tool_call_id": call["id"], "content": RESULT}]
        answer = self._message(messages, tools=[TOOL])
        arguments = json.loads(call["function"]["arguments"])
        return Session(call["function"]["name"], arguments, answer["content"])
