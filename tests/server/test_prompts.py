"""`/tokenize`, `/detokenize` and `/v1/render`: prompts as generation would make them, and nothing
submitted."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from helios.server.lifecycle import RequestEvent
from helios.server.options import HttpOptions
from helios.worker.messages import Submit
from tests.frontend.vocabularies import CONTEXT_TOKENS, byte_level_frontend
from tests.server.real import ServerProcess
from tests.server.scripted import RunningServer, running_server, says

MESSAGES = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hello <|im_end|> world"},
]
ROUTES = ("/tokenize", "/detokenize", "/v1/render")


async def _asks_nobody(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    raise AssertionError("nothing may be submitted")
    yield  # it is a generator


def ask(server: RunningServer | ServerProcess, path: str, **body: Any) -> dict[str, Any]:
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    said: dict[str, Any] = response.json()
    return said


def refused(response: httpx.Response, param: str | None, code: str = "invalid_value") -> str:
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)
    return str(error["message"])


# ---------------------------------------------------------------- tokenize


def test_a_text_is_tokenized_as_completions_do() -> None:
    with running_server(says("x")) as server:
        text = "hello w <|im_start|> é"
        said = ask(server, "/tokenize", prompt=text, model="sample-alias")
        ask(server, "/v1/completions", model="sample", prompt=text)
        assert said["tokens"] == server.client.submitted[0].prompt_tokens
        assert said["count"] == len(said["tokens"])
        assert said["max_model_len"] == CONTEXT_TOKENS
        assert said["token_strs"] is None
        # What spells a marker in a plain prompt is one, as in completions.
        assert 1 in said["tokens"]


def test_a_conversation_is_tokenized_as_chat_does() -> None:
    with running_server(says("x")) as server:
        said = ask(server, "/tokenize", messages=MESSAGES)
        ask(server, "/v1/chat/completions", model="sample", messages=MESSAGES)
        assert said["tokens"] == server.client.submitted[0].prompt_tokens
        # Two messages begin and the answer does; only the template's markers are some.
        assert [said["tokens"].count(marker) for marker in (1, 2)] == [3, 2]
        without = ask(server, "/tokenize", messages=MESSAGES, add_generation_prompt=False)
        assert said["tokens"][: without["count"]] == without["tokens"]
        assert without["tokens"].count(1) == 2


def test_tokens_are_spelled_as_in_the_vocabulary() -> None:
    with running_server(_asks_nobody) as server:
        said = ask(server, "/tokenize", prompt="hello w<|im_end|>", return_token_strs=True)
        assert said["token_strs"] == ["hello", "Ġw", "<|im_end|>"]
        empty = ask(server, "/tokenize", prompt="")
        assert (empty["count"], empty["tokens"]) == (0, [])


def test_variables_reach_the_template() -> None:
    frontend = byte_level_frontend("{{ style }}{{ messages[0].content }}")
    with running_server(_asks_nobody, frontend=frontend) as server:
        messages = [{"role": "user", "content": "!"}]
        plain = ask(server, "/tokenize", messages=messages, return_token_strs=True)
        said = ask(
            server,
            "/tokenize",
            messages=messages,
            chat_template_kwargs={"style": "hello"},
            return_token_strs=True,
        )
        assert (plain["token_strs"], said["token_strs"]) == (["!"], ["hello", "!"])


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "prompt", "missing_field"),
        ({"prompt": "a", "messages": MESSAGES}, "prompt", "missing_field"),
        ({"prompt": [1, 2]}, "prompt", "invalid_type"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "poet", "content": ""}]}, "messages[0].role", "invalid_value"),
        (
            {"messages": MESSAGES, "add_special_tokens": True},
            "add_special_tokens",
            "unsupported_parameter",
        ),
        ({"messages": MESSAGES, "tools": [{}]}, "tools[0].type", "missing_field"),
        ({"messages": MESSAGES, "functions": [{}]}, "functions", "unsupported_parameter"),
        ({"messages": MESSAGES, "continue_final_message": True, "add_generation_prompt": True},
         "add_generation_prompt", "invalid_value"),
        ({"prompt": "a", "truncate_prompt_tokens": 3}, "truncate_prompt_tokens",
         "unsupported_parameter"),
    ],
)  # fmt: skip
def test_what_tokenize_refuses(body: dict[str, Any], param: str, code: str) -> None:
    with running_server(_asks_nobody) as server:
        refused(server.http.post("/tokenize", json=body), param, code)


# ---------------------------------------------------------------- detokenize


def test_ids_become_text_again() -> None:
    with running_server(_asks_nobody) as server:
        text = "hello w é <|im_start|>user <think>"
        tokens = ask(server, "/tokenize", prompt=text)["tokens"]
        assert ask(server, "/detokenize", tokens=tokens) == {"prompt": text}
        accented = ask(server, "/tokenize", prompt="Ã", return_token_strs=True)["tokens"]
        assert ask(server, "/detokenize", tokens=accented[:1]) == {"prompt": "\N{REPLACEMENT CHARACTER}"}  # fmt: skip  # noqa: E501
        assert ask(server, "/detokenize", tokens=[]) == {"prompt": ""}


def test_ids_that_the_model_doesnt_have_are_named_by_their_place() -> None:
    with running_server(_asks_nobody) as server:
        for wrong in (-1, 1 << 40):
            response = server.http.post("/detokenize", json={"tokens": [5, 6, wrong, 7]})
            message = refused(response, "tokens[2]")
            assert message.startswith(f"tokens[2]: token id {wrong} is not in the model's")
        many = server.http.post("/detokenize", json={"tokens": [5] * (CONTEXT_TOKENS + 1)})
        refused(many, "tokens", "context_length_exceeded")
        refused(
            server.http.post("/detokenize", json={"tokens": ["5"]}), "tokens[0]", "invalid_type"
        )
        refused(server.http.post("/detokenize", json={}), "tokens", "missing_field")


# ---------------------------------------------------------------- render


def test_a_chat_body_is_rendered() -> None:
    frontend = byte_level_frontend(sampling={"temperature": 0.5, "top_k": 9})
    body: dict[str, Any] = {
        "model": "sample-alias", "messages": MESSAGES, "max_tokens": 7, "top_p": 0.25,
        "seed": -1, "n": 3, "stop_token_ids": [9], "priority": 2, "stream": True,
    }  # fmt: skip
    with running_server(_asks_nobody, frontend=frontend) as server:
        said = ask(server, "/v1/render", **body)
        assert said["prompt"] == (
            "<|im_start|>system\nbe brief<|im_end|>\n"
            "<|im_start|>user\nhello <|im_end|> world<|im_end|>\n<|im_start|>assistant\n"
        )
        assert said["prompt_token_ids"] == ask(server, "/tokenize", messages=MESSAGES)["tokens"]
        assert said["prompt_tokens"] == len(said["prompt_token_ids"])
        shown = {name: said[name] for name in ("object", "model", "max_tokens", "n", "priority")}
        assert shown == {
            "object": "prompt", "model": "sample", "max_tokens": 7, "n": 3, "priority": 2,
        }  # fmt: skip
        sampling = said["sampling"]
        assert (sampling["temperature"], sampling["top_k"], sampling["top_p"]) == (0.5, 9, 0.25)
        assert sampling["seed"] == 2**64 - 1
        assert (said["stop"], said["stop_token_sequences"]) == ([], [[9]])
        assert said["eos_token_ids"] == [2]
        assert server.metrics()["flare_http_permits"] == 0


def test_a_rendering_is_what_generation_submits() -> None:
    body = {"model": "sample", "prompt": "hello", "temperature": 0.25, "seed": 4, "stop": "x"}
    with running_server(says("x")) as server:
        said = ask(server, "/v1/render", **body)
        ask(server, "/v1/completions", **body)
        (submit,) = server.client.submitted
        assert said["prompt_token_ids"] == submit.prompt_tokens
        assert (
            said["max_tokens"] == submit.output_limit == CONTEXT_TOKENS - len(submit.prompt_tokens)
        )
        assert said["sampling"]["temperature"] == submit.sampling.temperature
        assert said["sampling"]["seed"] == submit.sampling.seed
        assert (said["stop"], said["eos_token_ids"]) == (["x"], submit.eos_ids)


def test_ids_are_rendered_with_their_text_and_no_seed_is_invented() -> None:
    with running_server(_asks_nobody) as server:
        tokens = ask(server, "/tokenize", prompt="hello w")["tokens"]
        said = ask(server, "/v1/render", model="sample", prompt=tokens, ignore_eos=True)
        assert (said["prompt"], said["prompt_token_ids"]) == ("hello w", tokens)
        assert said["sampling"]["seed"] is None
        assert said["eos_token_ids"] == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "sample"}, "messages"),
        ({"prompt": "a"}, "model"),
        ({"model": "sample", "prompt": "a", "temperature": 3}, "temperature"),
        ({"model": "sample", "prompt": "a", "max_completion_tokens": 999}, "max_completion_tokens"),
        ({"model": "sample", "messages": MESSAGES, "n": 0}, "n"),
    ],
)
def test_render_refuses_what_generation_refuses(body: dict[str, Any], param: str) -> None:
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    with running_server(_asks_nobody) as server:
        rendered = server.http.post("/v1/render", json=body)
        generated = server.http.post(path, json=body)
    assert rendered.status_code == 400
    assert rendered.json() == generated.json()
    assert rendered.json()["error"]["param"] == param


# ---------------------------------------------------------------- all three


BODIES: dict[str, dict[str, Any]] = {
    "/tokenize": {"prompt": "hello"},
    "/detokenize": {"tokens": [5]},
    "/v1/render": {"model": "sample", "prompt": "hello"},
}
each = pytest.mark.parametrize("path", ROUTES)


@each
def test_other_models_and_unknown_fields(path: str) -> None:
    with running_server(_asks_nobody) as server:
        other = server.http.post(path, json=BODIES[path] | {"model": "gpt"})
        assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
        named = server.http.post(path, json=BODIES[path] | {"zebra": 1})
        assert (named.status_code, named.headers["x-helios-ignored"]) == (200, "zebra")
        refused(server.http.post(path, content=b"["), None, "invalid_json")
        assert server.http.get(path).status_code == 405


@each
def test_strict_fields(path: str) -> None:
    with running_server(_asks_nobody, options=HttpOptions(strict_fields=True)) as server:
        refused(server.http.post(path, json=BODIES[path] | {"zebra": 1}), "zebra", "unknown_field")


@each
def test_before_the_model_is_there(path: str) -> None:
    with running_server(_asks_nobody, loaded=False) as server:
        early = server.http.post(path, json=BODIES[path])
        assert (early.status_code, early.json()["error"]["code"]) == (503, "loading_core")


@each
def test_prompts_are_made_in_preparation_slots_under_a_permit(path: str) -> None:
    with running_server(_asks_nobody, permits=1) as server:
        model = server.lifecycle.model
        assert model is not None
        free = threading.Event()
        model.preparation.submit(free.wait)  # the only slot is taken
        answers: list[httpx.Response] = []
        waiting = threading.Thread(
            target=lambda: answers.append(
                httpx.post(server.url + path, json=BODIES[path], timeout=60)
            )
        )
        waiting.start()
        try:
            # It happens on other threads; looked at over and over.
            assert any(server.metrics()["flare_http_permits"] for _ in range(20_000))
            # The event loop is free, and the permit is the one that generation would take.
            assert server.http.get("/health").status_code == 200
            full = server.http.post("/v1/completions", json={"model": "sample", "prompt": "a"})
            assert full.status_code == 429
            assert not answers
        finally:
            free.set()
            waiting.join()
        assert answers[0].status_code == 200


# ---------------------------------------------------------------- a real core


def test_a_real_tokenizer_goes_both_ways(real_server: ServerProcess) -> None:
    said = ask(real_server, "/tokenize", prompt="Once upon a time", return_token_strs=True)
    assert said["count"] == len(said["tokens"]) == len(said["token_strs"]) > 0
    assert said["max_model_len"] == 512
    plain = ask(real_server, "/tokenize", prompt="Once upon a time", add_special_tokens=False)
    assert ask(real_server, "/detokenize", tokens=plain["tokens"])["prompt"] == "Once upon a time"


@pytest.mark.parametrize("path", ["/tokenize", "/v1/render"])
def test_a_hopeless_text_is_refused_before_it_is_read(
    real_server: ServerProcess, path: str
) -> None:
    body = {"model": "tiny", "prompt": "a b " * 2_500_000}
    message = refused(real_server.http.post(path, json=body), "prompt", "context_length_exceeded")
    assert "at least" in message


def test_a_real_rendering_is_what_the_answer_says(real_server: ServerProcess) -> None:
    body = {
        "model": "tiny", "messages": MESSAGES, "max_tokens": 2, "return_token_ids": True,
    }  # fmt: skip
    said = ask(real_server, "/v1/render", **body)
    answer = ask(real_server, "/v1/chat/completions", **body)
    assert said["prompt_token_ids"] == answer["prompt_token_ids"]
    assert said["prompt_tokens"] == answer["usage"]["prompt_tokens"]
