"""An agent: a model that calls tools until it can answer, over Helios's API with OpenAI's SDK.

    make demo                                  # leaves a server up
    python examples/agent_loop.py "What is 12 times 34?"

Each round asks the model; where it calls a tool, the tool runs here and its result goes into the
conversation, until the model answers in words. The first round has to call a tool
(`tool_choice: required`), so that even the demo's small model makes a valid call.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

try:
    from openai import APIConnectionError, APIStatusError, OpenAI
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    print("agent_loop.py needs OpenAI's SDK: pip install openai", file=sys.stderr)
    sys.exit(2)

ROUNDS = 5


def multiply(a: int, b: int) -> str:
    """A tool."""
    return str(a * b)


def count_letters(word: str, letter: str) -> str:
    """Another one."""
    return str(word.lower().count(letter.lower()))


FUNCTIONS: dict[str, Callable[..., str]] = {
    "multiply": multiply,
    "count_letters": count_letters,
}


def _tool(name: str, about: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """A tool all of whose arguments have to be there."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    function = {"name": name, "description": about, "parameters": parameters, "strict": True}
    return {"type": "function", "function": function}


TOOLS = [
    _tool(
        "multiply",
        "The product of two whole numbers.",
        a={"type": "integer"},
        b={"type": "integer"},
    ),
    _tool(
        "count_letters",
        "How often a letter occurs in a word.",
        word={"type": "string", "maxLength": 40},
        letter={"type": "string", "minLength": 1, "maxLength": 1},
    ),
]


def run_tool(name: str, arguments: str) -> str:
    """What a call gives; the model reads what goes wrong, too."""
    function = FUNCTIONS.get(name)
    if function is None:
        return f"error: there is no tool {name}"
    try:
        return function(**json.loads(arguments))
    except (ValueError, TypeError) as error:
        return f"error: {error}"


def answer(client: OpenAI, model: str, question: str, tell: Callable[[str], None]) -> str:
    """The model's answer in words; `tell` hears of each call and its result. Raises RuntimeError
    where there is none after some rounds."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for number in range(ROUNDS):
        said = client.chat.completions.create(
            model=model,
            messages=messages,
            tools=TOOLS,  # type: ignore[arg-type]
            tool_choice="required" if number == 0 else "auto",
            parallel_tool_calls=False,
            temperature=0,
            max_tokens=200,
        ).choices[0]
        calls = said.message.tool_calls or []
        if not calls:
            return said.message.content or ""
        messages.append(said.message.model_dump(exclude_none=True))
        for call in calls:
            assert call.type == "function"
            result = run_tool(call.function.name, call.function.arguments)
            tell(f"{call.function.name}({call.function.arguments}) = {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError(f"no answer after {ROUNDS} rounds")


def main() -> int:
    """Reads the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Ask a model that can call tools.")
    parser.add_argument("question")
    parser.add_argument("--server", default="http://127.0.0.1:8000", help="without /v1")
    parser.add_argument("--key", default="none", help="the server's API key, if it wants one")
    given = parser.parse_args()
    with OpenAI(base_url=f"{given.server}/v1", api_key=given.key) as client:
        try:
            model = next(iter(client.models.list())).id
        except APIConnectionError:
            start = "start one with `make demo`, or name another with --server"
            print(f"agent_loop.py: no server answers at {given.server}: {start}", file=sys.stderr)
            return 2
        except APIStatusError as error:
            print(f"agent_loop.py: {given.server} says {error.message}", file=sys.stderr)
            return 2
        print(answer(client, model, given.question, lambda line: print(f"  {line}")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
