"""Reasoning before answers of a form, from a whole server over a real core with random weights.

The model's template opens reasoning, or closes it where a request wants none; nothing but grammars
makes it end its reasoning and write JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ignition.preparation import signing
from ignition.preparation.prepare import Options, prepare
from tests.checkpoints import CHAT_TEMPLATE, TOKENS, write_huggingface
from tests.engine.schemas import SCHEMAS, fits
from tests.server.real import NAMESPACE, ServerProcess, server_process
from tests.silence import Silent

TAGS = ("<think>", "</think>")
THINKING = CHAT_TEMPLATE.replace(
    "assistant\\n' }}",
    "assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% else %}{{ '<think>\\n' }}{% endif %}",
)
DENSE = {str(token): -100 for token in (200, 201, 204, 223)}  # white space
SCHEMA = SCHEMAS[0]
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def server(
    publisher_key: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("thinking")
    # Its embedding has more rows than its tokenizer has tokens.
    checkpoint = write_huggingface(folder / "checkpoint", "qwen2")
    _alter(checkpoint / "tokenizer_config.json", lambda read: read.update(chat_template=THINKING))
    _alter(checkpoint / "tokenizer.json", _add_tags)
    options = Options(
        namespace=NAMESPACE,
        served_id="tiny",
        max_active=4,
        prefill=(128,),
        decode=(1, 4),
        scored_prefill=(),
        restore=(),
    )
    key = signing.read_private_key(publisher_key)
    prepare(checkpoint, folder / "core", options, key, Silent())
    with server_process(folder / "core", "--threads", "1") as running:
        yield running


def _alter(path: Path, change: Any) -> None:
    read = json.loads(path.read_text())
    change(read)
    path.write_text(json.dumps(read))


def _add_tags(tokenizer: dict[str, Any]) -> None:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    for number, tag in enumerate(TAGS):
        tokenizer["added_tokens"].append({"id": TOKENS + number, "content": tag, **plain})


def ask(server: ServerProcess, seed: int, **more: Any) -> dict[str, Any]:
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "the weather"}],
        "temperature": 1.0,
        "seed": seed,
        "max_tokens": 200,
        "logit_bias": DENSE,
    }
    response = server.http.post("/v1/chat/completions", json=body | more)
    assert response.status_code == 200, response.text
    return dict(response.json()["choices"][0])


def test_the_core_declares_its_reasoning(server: ServerProcess) -> None:
    able = server.http.get("/v1/models").json()["data"][0]["capabilities"]
    assert (able["reasoning"], able["reasoning_syntax"]) == (True, "think_tags")


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tokens", [0, 9])
def test_a_budget_ends_reasoning_and_the_answer_has_its_form(
    server: ServerProcess, seed: int, tokens: int
) -> None:
    choice = ask(
        server, seed, response_format=FORM, thinking_token_budget=tokens, return_token_ids=True
    )
    message, ids = choice["message"], choice["token_ids"]
    assert fits(json.loads(message["content"]), SCHEMA)
    assert choice["finish_reason"] == "stop"
    assert ids.index(TOKENS + 1) <= tokens
    assert ("reasoning_content" in message) == (ids[0] != TOKENS + 1)
    hidden = ask(
        server, seed, response_format=FORM, thinking_token_budget=tokens, include_reasoning=False
    )["message"]
    assert hidden["content"] == message["content"]
    assert "reasoning_content" not in hidden


@pytest.mark.clause("FRONT-7", "FRONT-14")
@pytest.mark.parametrize(
    "off",
    [
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"thinking": {"type": "disabled"}},
    ],
    ids=["I03-kwargs", "I03-effort", "I03-disabled"],
)
def test_without_thinking_the_answer_begins_at_once(
    server: ServerProcess, off: dict[str, Any]
) -> None:
    for seed in range(3):
        message = ask(server, seed, response_format=FORM, **off)["message"]
        assert fits(json.loads(message["content"]), SCHEMA)
        assert "reasoning_content" not in message


def test_reasoning_that_never_ends_is_reasoning(server: ServerProcess) -> None:
    never = {"logit_bias": {str(TOKENS + 1): -100}, "ignore_eos": True, "max_tokens": 20}
    choice = ask(server, 1, **never)
    assert choice["message"]["reasoning_content"]
    assert choice["message"]["content"] == ""
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("seed", range(3))
def test_a_free_answer_follows_a_budget(server: ServerProcess, seed: int) -> None:
    asked = {"thinking_token_budget": 4, "max_tokens": 60, "return_token_ids": True}
    choice = ask(server, seed, ignore_eos=True, **asked)
    assert choice["token_ids"].index(TOKENS + 1) <= 4
    assert choice["message"]["content"]
    assert "think>" not in choice["message"]["content"]
