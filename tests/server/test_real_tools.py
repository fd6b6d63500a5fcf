"""Calls that are certain, from a whole server over a real core with random weights.

Nothing but the grammar makes such a model write a call, so every one that is valid is its doing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from ignition.preparation import signing
from ignition.preparation.prepare import Options, prepare
from tests.checkpoints import VARIANTS, write_huggingface
from tests.engine.schemas import fits
from tests.server.real import DEADLINE_S, NAMESPACE, server_process
from tests.silence import Silent

DENSE = {str(token): -100 for token in (200, 201, 204, 223)}  # white space
SWITCH = {
    "type": "object",
    "properties": {"lamp": {"enum": ["red", "green"]}, "on": {"type": "boolean"}},
    "required": ["lamp", "on"],
    "additionalProperties": False,
}
COUNT = {
    "type": "object",
    "properties": {"digit": {"enum": [1, 2, 3]}},
    "required": ["digit"],
    "additionalProperties": False,
}
SCHEMAS = {"switch": SWITCH, "count": COUNT}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


@pytest.fixture(scope="module")
def sdk(publisher_key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of a server whose context has room for tools, byte by byte."""
    folder = tmp_path_factory.mktemp("roomy")
    variant = replace(VARIANTS["llama"], context=4096)
    options = Options(
        namespace=NAMESPACE,
        served_id="tiny",
        max_active=4,
        prefill=(128,),
        decode=(1, 4),
        scored_prefill=(),
        restore=(),
    )
    checkpoint = write_huggingface(folder / "checkpoint", variant)
    prepare(checkpoint, folder / "core", options, signing.read_private_key(publisher_key), Silent())
    with (
        server_process(folder / "core", "--threads", "1") as server,
        OpenAI(
            base_url=server.url + "/v1", api_key="none", timeout=DEADLINE_S, max_retries=0
        ) as client,
    ):
        yield client


def body(seed: int, **more: Any) -> dict[str, Any]:
    return {
        "model": "tiny",
        "messages": [{"role": "user", "content": "the lamp"}],
        "tools": TOOLS,
        "parallel_tool_calls": False,
        "temperature": 1.0,
        "seed": seed,
        "max_tokens": 200,
        "logit_bias": DENSE,
    } | more


def calls_of(message: Any) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or []]


def check(name: str, arguments: str) -> None:
    assert fits(json.loads(arguments), SCHEMAS[name])


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("seed", range(6))
def test_a_required_call_is_made_and_valid(sdk: OpenAI, seed: int) -> None:
    asked = body(seed, tool_choice="required")
    choice = sdk.chat.completions.create(**asked).choices[0]
    ((name, arguments),) = calls_of(choice.message)
    check(name, arguments)
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    streamed = ["", ""]
    for chunk in sdk.chat.completions.create(**asked, stream=True):
        for part in chunk.choices[0].delta.tool_calls or []:
            assert part.function is not None
            streamed[0] += part.function.name or ""
            streamed[1] += part.function.arguments or ""
    assert streamed == [name, arguments]


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("seed", range(3))
def test_a_named_call_is_made_once(sdk: OpenAI, name: str, seed: int) -> None:
    named = {"type": "function", "function": {"name": name}}
    asked = body(seed, tool_choice=named, parallel_tool_calls=None)
    choice = sdk.chat.completions.create(**asked).choices[0]
    ((called, arguments),) = calls_of(choice.message)
    assert called == name
    check(called, arguments)
    assert choice.finish_reason == "stop"


def test_parallel_calls_are_all_valid(sdk: OpenAI) -> None:
    counts = set()
    for seed in range(4):
        asked = body(seed, tool_choice="required", parallel_tool_calls=True, max_tokens=120)
        choice = sdk.chat.completions.create(**asked).choices[0]
        calls = calls_of(choice.message)
        whole = calls if choice.finish_reason == "tool_calls" else calls[:-1]
        for name, arguments in whole:
            check(name, arguments)
        counts.add(len(calls))
    assert max(counts) > 0


def test_a_required_call_after_results(sdk: OpenAI) -> None:
    choice = sdk.chat.completions.create(**body(1, tool_choice="required")).choices[0]
    (call,) = choice.message.tool_calls or []
    history = [
        {"role": "user", "content": "the lamp"},
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "done"},
    ]
    again = sdk.chat.completions.create(**body(2, tool_choice="required", messages=history))
    ((name, arguments),) = calls_of(again.choices[0].message)
    check(name, arguments)


def test_calls_of_several_choices(sdk: OpenAI) -> None:
    answer = sdk.chat.completions.create(**body(3, tool_choice="required", n=3))
    assert len(answer.choices) == 3
    for choice in answer.choices:
        ((name, arguments),) = calls_of(choice.message)
        check(name, arguments)
    alone = sdk.chat.completions.create(**body(4, tool_choice="required"))
    assert calls_of(answer.choices[1].message) == calls_of(alone.choices[0].message)
