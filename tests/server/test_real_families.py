"""Checkpoints without a template, served as their families: calls and reasoning of a whole server.

The weights are random, so nothing but the family's grammar makes a call valid or ends reasoning,
and nothing but its template and parser makes either out of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ignition.preparation import signing
from ignition.preparation.prepare import Options, prepare
from ignition.preparation.templates import FamilyTemplate
from tests.engine.schemas import SCHEMAS, fits
from tests.preparation.templateless import write_templateless
from tests.server.real import NAMESPACE, ServerProcess, server_process
from tests.silence import Silent

DENSE = {str(token): -100 for token in (200, 201, 204, 223)}  # white space
LAMP = {
    "type": "object",
    "properties": {"lamp": {"enum": ["red", "green"]}, "on": {"type": "boolean"}},
    "required": ["lamp", "on"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "switch", "parameters": LAMP}}]
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMAS[0]}}

# What ends reasoning, where that is a token.
_ENDS = {FamilyTemplate.XTML: "<|close|>", FamilyTemplate.DSML: "</think>"}


@dataclass
class Served:
    which: FamilyTemplate
    server: ServerProcess

    def token(self, text: str) -> str:
        """The id of a text that is one token."""
        body = {"prompt": text, "add_special_tokens": False}
        (token,) = self.server.http.post("/tokenize", json=body).json()["tokens"]
        return str(token)

    def ask(self, seed: int, **more: Any) -> dict[str, Any]:
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "the lamp"}],
            "temperature": 1.0,
            "seed": seed,
            "max_tokens": 300,
            "logit_bias": DENSE,
            "chat_template_kwargs": {"thinking": True},
        }
        response = self.server.http.post("/v1/chat/completions", json=body | more)
        assert response.status_code == 200, response.text
        return dict(response.json()["choices"][0])


@pytest.fixture(scope="module", params=list(FamilyTemplate), ids=lambda which: which.value.name)
def served(
    request: pytest.FixtureRequest, publisher_key: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("family")
    checkpoint = write_templateless(folder / "checkpoint", request.param)
    options = Options(
        namespace=NAMESPACE, served_id="tiny", max_active=4, prefill=(128,), decode=(1, 4),
        scored_prefill=(), restore=(),
    )  # fmt: skip
    key = signing.read_private_key(publisher_key)
    prepare(checkpoint, folder / "core", options, key, Silent())
    with server_process(folder / "core", "--threads", "1") as server:
        yield Served(request.param, server)


def test_the_core_declares_its_familys_syntax(served: Served) -> None:
    able = served.server.http.get("/v1/models").json()["data"][0]["capabilities"]
    assert (able["tools"], able["reasoning"]) == (True, True)


@pytest.mark.parametrize("seed", range(2))
def test_a_required_call_is_read(served: Served, seed: int) -> None:
    asked = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    # Here text comes before calls, and nothing but chance would end it.
    hurry = {served.token("<|close|>"): 8} if served.which is FamilyTemplate.XTML else {}
    choice = served.ask(
        seed, **asked, thinking_token_budget=5, logit_bias=DENSE | hurry, max_tokens=500
    )
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "switch"
    arguments = json.loads(call["function"]["arguments"])
    assert arguments["lamp"] in ("red", "green")
    assert isinstance(arguments["on"], bool)
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("seed", range(2))
def test_reasoning_and_its_answer_are_read(served: Served, seed: int) -> None:
    # An end that never comes by itself; where the model chooses whom it writes to, `to=self`.
    headers = served.which is FamilyTemplate.RECIPIENT_HEADERS
    bias = {served.token("s"): 20} if headers else {served.token(_ENDS[served.which]): -100}
    asked = {"response_format": FORM, "thinking_token_budget": 6, "logit_bias": DENSE | bias}
    choice = served.ask(seed, **asked)
    message = choice["message"]
    assert message["reasoning_content"]
    assert fits(json.loads(message["content"]), SCHEMAS[0])
    assert choice["finish_reason"] == "stop"


def test_a_conversation_with_a_call_goes_on(served: Served) -> None:
    call = {"name": "switch", "arguments": '{"lamp": "red", "on": true}'}
    messages = [
        {"role": "user", "content": "the lamp"},
        {"role": "assistant", "content": None, "reasoning_content": "hm",
         "tool_calls": [{"id": "c1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c1", "content": "it shines"},
    ]  # fmt: skip
    body = {"model": "tiny", "messages": messages, "tools": TOOLS}
    rendered = served.server.http.post("/v1/render", json=body).json()["prompt"]
    assert "it shines" in rendered
    assert "switch" in rendered
