"""Bodies that can't be answered: each names its field, and the server goes on unharmed."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from helios.server.options import HttpOptions
from helios.server.options.limits import LimitOptions
from tests.server.scripted import RunningServer, running_server, says

CHAT_PATH, COMPLETION_PATH = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "hello"}
CHAT: dict[str, Any] = {"model": "sample", "messages": [USER]}
COMPLETION: dict[str, Any] = {"model": "sample", "prompt": "hello"}
_NESTED: Any = functools.reduce(lambda inner, _: {"a": inner}, range(600), {})
LIMITED = HttpOptions(limits=LimitOptions(max_body_nbytes=10_000))
TOOL = {"type": "function", "function": {"name": "f"}}
CALLED = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "[1]"}}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(says("hello"), options=LIMITED) as running:
        yield running


def _refusal(server: RunningServer, response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object; the server must still answer afterwards."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert server.http.get("/ready").status_code == 200
    assert server.http.post(CHAT_PATH, json=CHAT).status_code == 200
    return dict(error)


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETION_PATH])
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"text"', b"null", b"{'model': 1}", b"\xff\xfe", b"[" * 5000, b"NaN"],
)
def test_bodies_that_are_no_json_objects(server: RunningServer, path: str, body: bytes) -> None:
    error = _refusal(server, server.http.post(path, content=body), 400)
    assert error["code"] == "invalid_json"
    assert error["type"] == "invalid_request_error"


SHARED: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt_logprobs": 21}, "prompt_logprobs", "invalid_value"),
    ({"prompt_logprobs": -1}, "prompt_logprobs", "invalid_value"),
    ({"prompt_logprobs": 1.5}, "prompt_logprobs", "invalid_type"),
    ({"max_tokens": 0, "prompt_logprobs": 0}, "prompt_logprobs", "unsupported_parameter"),
    ({"logprobs_mode": "raw_logits"}, "logprobs_mode", "unsupported_parameter"),
    ({"model": 3}, "model", "invalid_type"),
    ({"model": None}, "model", "invalid_type"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"stream_options": {"include_usage": 1}, "stream": True}, "stream_options.include_usage",
     "invalid_type"),
    ({"stream_options": {}}, "stream_options", "invalid_value"),
    ({"max_tokens": "7"}, "max_tokens", "invalid_type"),
    ({"max_tokens": 1.5}, "max_tokens", "invalid_type"),
    ({"max_tokens": True}, "max_tokens", "invalid_type"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_tokens": -1}, "max_tokens", "invalid_value"),
    ({"max_tokens": 10_000}, "max_tokens", "context_length_exceeded"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"temperature": 2.1}, "temperature", "invalid_value"),
    ({"temperature": -0.1}, "temperature", "invalid_value"),
    ({"top_p": 1.1}, "top_p", "invalid_value"),
    ({"min_p": -1}, "min_p", "invalid_value"),
    ({"top_k": -2}, "top_k", "invalid_value"),
    ({"top_k": 1 << 40}, "top_k", "invalid_value"),
    ({"seed": 1.5}, "seed", "invalid_type"),
    ({"seed": 1 << 64}, "seed", "invalid_value"),
    ({"priority": "high"}, "priority", "invalid_type"),
    ({"priority": 0.5}, "priority", "invalid_type"),
    ({"priority": 17}, "priority", "invalid_value"),
    ({"priority": -1000}, "priority", "invalid_value"),
    ({"seed": -(1 << 63) - 1}, "seed", "invalid_value"),
    ({"max_completion_tokens": 10_000}, "max_completion_tokens", "context_length_exceeded"),
    ({"max_completion_tokens": 5, "max_tokens": 5}, "max_tokens", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": 129}, "n", "invalid_value"),
    ({"n": "2"}, "n", "invalid_type"),
    ({"logit_bias": {"5": "1"}}, "logit_bias[...]", "invalid_type"),
    ({"logit_bias": {"five": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"5": 101}}, "logit_bias", "invalid_value"),
    ({"presence_penalty": 2.5}, "presence_penalty", "invalid_value"),
    ({"frequency_penalty": -2.5}, "frequency_penalty", "invalid_value"),
    ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
    ({"min_tokens": -1}, "min_tokens", "invalid_value"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens", "invalid_value"),
    ({"ignore_eos": 1}, "ignore_eos", "invalid_type"),
    ({"bad_words": ["a", " "]}, "bad_words[1]", "invalid_value"),
    ({"bad_words": "a"}, "bad_words", "invalid_type"),
    ({"allowed_token_ids": ["5"]}, "allowed_token_ids[0]", "invalid_type"),
    ({"stop": [1]}, "stop[0]", "invalid_type"),
    ({"stop": 1}, "stop", "invalid_type"),
    ({"stop": ""}, "stop", "invalid_value"),
    ({"stop": ["a", ""]}, "stop[1]", "invalid_value"),
    ({"stop": ["a"] * 5}, "stop", "invalid_value"),
    ({"stop": ["é" * 1024, "é" * 1024, "a"]}, "stop", "invalid_value"),
    ({"stop": "a", "stop_token_ids": [5]}, "stop", "invalid_value"),
    ({"stop": ["a"], "stop_token_sequences": [[5]]}, "stop", "invalid_value"),
    ({"stop": "a", "response_format": {"type": "json_object"}}, "stop", "invalid_value"),
    ({"stop": "a", "guided_regex": "b"}, "stop", "invalid_value"),
    ({"stop_token_ids": ["5"]}, "stop_token_ids[0]", "invalid_type"),
    ({"stop_token_ids": [True]}, "stop_token_ids[0]", "invalid_type"),
    ({"stop_token_ids": [5, 100_000]}, "stop_token_ids[1]", "invalid_value"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "invalid_value"),
    ({"stop_token_sequences": [5]}, "stop_token_sequences[0]", "invalid_type"),
    ({"stop_token_sequences": [[]]}, "stop_token_sequences[0]", "invalid_value"),
    ({"stop_token_sequences": [[5]] * 17}, "stop_token_sequences", "invalid_value"),
    ({"stop_token_sequences": [[5] * 65]}, "stop_token_sequences[0]", "invalid_value"),
    ({"logit_bias": {"5": 1}}, "logit_bias", "unsupported_parameter"),
    ({"presence_penalty": 0.5}, "presence_penalty", "unsupported_parameter"),
    ({"frequency_penalty": 0.5}, "frequency_penalty", "unsupported_parameter"),
    ({"repetition_penalty": 1.1}, "repetition_penalty", "unsupported_parameter"),
    ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
    ({"return_token_ids": 1}, "return_token_ids", "invalid_type"),
    ({"return_token_timestamps": "true"}, "return_token_timestamps", "invalid_type"),
    ({"return_token_ids": True, "n": 2}, "n", "invalid_value"),
]  # fmt: skip

UNSUPPORTED: list[dict[str, Any]] = [
    {"best_of": 2}, {"logprobs_mode": "processed_logprobs"}, {"suffix": "x"},
    {"prompt_logprobs": 0},
    {"functions": [{}]}, {"function_call": {"name": "f"}}, {"reasoning": {"effort": "low"}},
    {"modalities": ["audio"]}, {"separate_reasoning": False}, {"min_tokens": 1},
    {"bad_words": ["x"]}, {"allowed_token_ids": [5]},
    # The core's programs are from before there were masks of grammars.
    {"response_format": {"type": "json_object"}}, {"guided_json": {}}, {"guided_regex": "a"},
    {"guided_choice": ["a"]}, {"guided_grammar": "a"}, {"json_schema": {}}, {"regex": "a"},
    {"ebnf": "root ::= \"a\""}, {"grammar": "a"},
    {"structural_tag": {"format": {"type": "any_text"}}},
    {"add_generation_prompt": False}, {"chat_template": "x"}, {"skip_special_tokens": False},
    {"use_beam_search": True}, {"length_penalty": 2}, {"max_new_tokens": 5},
    {"do_sample": False}, {"truncate": 5}, {"encoder_repetition_penalty": 1.1},
    {"stop_regex": "a+"}, {"no_stop_trim": True}, {"lora_path": "a"}, {"lora": [{"id": 0}]},
    {"samplers": ["top_k"]}, {"n_probs": 3}, {"custom_logit_processor": "x"},
    {"vllm_xargs": {"a": 1}},
    {"options": {"temperature": 0}}, {"random_seed": 1}, {"enable_thinking": False},
]  # fmt: skip
# What chat completions alone do.
OF_CHAT: list[dict[str, Any]] = [
    {"tools": [TOOL]}, {"tool_choice": "required"}, {"documents": [{}]},
    {"reasoning_effort": "low"}, {"thinking": {"type": "enabled"}}, {"thinking_token_budget": 5},
    {"include_reasoning": False}, {"chat_template_kwargs": {"a": 1}},
    {"continue_final_message": True},
]  # fmt: skip
NEUTRAL: dict[str, Any] = {
    "best_of": 1, "echo": False, "suffix": "", "top_logprobs": 0, "prompt_logprobs": None,
    "logprobs_mode": "raw_logprobs",
    "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "modalities": ["text"],
    "response_format": {"type": "text"}, "include_reasoning": True, "separate_reasoning": True,
    "min_tokens": 0,
    "ignore_eos": False, "bad_words": [], "continue_final_message": False,
    "add_generation_prompt": True, "skip_special_tokens": True, "length_penalty": 1.0,
    "do_sample": True, "encoder_repetition_penalty": 1, "watermark": False, "n_probs": 0,
}  # fmt: skip


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETION_PATH])
@pytest.mark.parametrize("more", UNSUPPORTED, ids=lambda more: next(iter(more)))
def test_what_would_change_the_answer_is_refused_by_both_apis(
    server: RunningServer, path: str, more: dict[str, Any]
) -> None:
    body = (CHAT if path == CHAT_PATH else COMPLETION) | more
    error = _refusal(server, server.http.post(path, json=body), 400)
    assert (error["param"], error["code"]) == (next(iter(more)), "unsupported_parameter")


@pytest.mark.parametrize("more", OF_CHAT, ids=lambda more: next(iter(more)))
def test_what_only_chat_does_is_refused_elsewhere(
    server: RunningServer, more: dict[str, Any]
) -> None:
    error = _refusal(server, server.http.post(COMPLETION_PATH, json=COMPLETION | more), 400)
    assert (error["param"], error["code"]) == (next(iter(more)), "unsupported_parameter")
    assert "/v1/chat/completions" in error["message"]


@pytest.mark.parametrize(("path", "allowed"), [(CHAT_PATH, False), (COMPLETION_PATH, True)])
def test_special_tokens_are_what_they_are(server: RunningServer, path: str, allowed: bool) -> None:
    body = CHAT if path == CHAT_PATH else COMPLETION
    answer = server.http.post(path, json=body | {"add_special_tokens": allowed})
    assert (answer.status_code, answer.headers.get("x-helios-ignored")) == (200, None)
    answer = server.http.post(path, json=body | {"add_special_tokens": not allowed})
    assert _refusal(server, answer, 400)["param"] == "add_special_tokens"


@pytest.mark.parametrize("key", [" 5", "5 ", "1_0", "\u0663", "+5", "-1", "", "5.0", "9" * 5000])
def test_keys_of_biases_are_decimal_digits(server: RunningServer, key: str) -> None:
    answer = server.http.post(CHAT_PATH, json=CHAT | {"logit_bias": {key: 1}})
    error = _refusal(server, answer, 400)
    assert (error["param"], error["code"]) == ("logit_bias", "invalid_value")
    assert "decimal digits" in error["message"]


@pytest.mark.parametrize(
    "name", ["add_generation_prompt", "messages", "tools", "documents", "continue_final_message"]
)
@pytest.mark.parametrize("path", [CHAT_PATH, "/v1/render", "/tokenize"])
def test_template_variables_are_the_client_s_own(
    server: RunningServer, path: str, name: str
) -> None:
    body = CHAT | {"chat_template_kwargs": {name: [1]}}
    error = _refusal(server, server.http.post(path, json=body), 400)
    assert error["param"] == f"chat_template_kwargs.{name}"
    assert ". Send" in error["message"] or ". Leave it out" in error["message"]
    body = CHAT | {"chat_template_kwargs": {name: None, "style": "x"}}
    assert server.http.post(path, json=body).status_code == 200


@pytest.mark.parametrize("path", [CHAT_PATH, "/tokenize", "/abort"])
def test_compressed_bodies_are_refused(server: RunningServer, path: str) -> None:
    def post(coding: str) -> httpx.Response:
        body = CHAT | {"request_id": "x"}
        return server.http.post(path, json=body, headers={"content-encoding": coding})

    error = _refusal(server, post("gzip"), 415)
    assert error["code"] == "unsupported_encoding"
    assert "without that header" in error["message"]
    assert post("Identity").status_code == (404 if path == "/abort" else 200)


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETION_PATH])
def test_values_that_change_nothing_are_accepted(server: RunningServer, path: str) -> None:
    body = CHAT if path == CHAT_PATH else COMPLETION
    response = server.http.post(path, json=body | NEUTRAL)
    assert response.status_code == 200
    assert "x-helios-ignored" not in response.headers
    assert server.http.post(path, json=body | dict.fromkeys(NEUTRAL)).status_code == 200


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETION_PATH])
@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 5000, "1" + "0" * 400])
def test_numbers_that_nothing_holds_name_their_field(
    server: RunningServer, path: str, number: str
) -> None:
    body = json.dumps((CHAT if path == CHAT_PATH else COMPLETION) | {"temperature": 0})
    content = body.replace('"temperature": 0', '"temperature": ' + number)
    error = _refusal(server, server.http.post(path, content=content.encode()), 400)
    assert error["param"] == "temperature"
    assert error["message"].startswith("temperature: ")


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETION_PATH])
def test_the_newer_name_of_the_output_limit_is_known(server: RunningServer, path: str) -> None:
    body = (CHAT if path == CHAT_PATH else COMPLETION) | {"max_completion_tokens": 7}
    assert server.http.post(path, json=body).status_code == 200
    assert server.client.submitted[-1].output_limit == 7


CHAT_ONLY: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": None}, "messages", "invalid_type"),
    ({"messages": "hello"}, "messages", "invalid_type"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_field"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "invalid_value"),
    ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages[1].role", "invalid_value"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role",
     "unsupported_parameter"),
    ({"messages": [{"role": "assistant", "tool_calls": [TOOL]}]},
     "messages[0].tool_calls[0].function.arguments", "missing_field"),
    ({"messages": [USER | {"tool_calls": [CALLED]}]}, "messages[0].tool_calls", "invalid_value"),
    ({"messages": [USER | {"tool_call_id": "a"}]}, "messages[0].tool_call_id", "invalid_value"),
    ({"messages": [{"role": "assistant", "tool_calls": [CALLED]}]},
     "messages[0].tool_calls[0].function.arguments", "invalid_value"),
    ({"messages": [{"role": "assistant", "function_call": {}}]}, "messages[0].function_call",
     "unsupported_parameter"),
    ({"messages": [{"role": "assistant"}], "continue_final_message": True}, "messages[0].content",
     "invalid_value"),
    ({"messages": [{"role": "assistant", "tool_calls": [
        {"id": "a", "function": {"name": "f", "arguments": '{"x": NaN}'}}]}]},
     "messages[0].tool_calls[0].function.arguments", "invalid_value"),
    ({"add_generation_prompt": True, "continue_final_message": True}, "add_generation_prompt",
     "invalid_value"),
    ({"tools": [TOOL] * 2}, "tools[1].function.name", "invalid_value"),
    ({"tools": [TOOL | {"type": "custom"}]}, "tools[0].type", "unsupported_parameter"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_field"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name",
     "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]},
     "tools[0].function.parameters", "invalid_value"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice", "invalid_value"),
    ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice", "invalid_value"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
     "tool_choice", "invalid_value"),
    ({"tools": [TOOL]}, "tools", "unsupported_parameter"),  # the core declares no syntax
    ({"guided_regex": "a", "regex": "b"}, "regex", "invalid_value"),
    ({"response_format": {"type": "json_object"}, "guided_json": {}}, "guided_json",
     "invalid_value"),
    ({"response_format": "json"}, "response_format", "invalid_type"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "invalid_value"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
     "response_format.json_schema.schema", "invalid_value"),
    ({"response_format": {"type": "regex"}}, "response_format.pattern", "invalid_value"),
    ({"structured_outputs": {"xml": "a"}}, "structured_outputs.xml", "unsupported_parameter"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "invalid_value"),
    ({"guided_json": "{"}, "guided_json", "invalid_value"),
    ({"guided_json": 5}, "guided_json", "invalid_value"),
    ({"thinking": {"type": "adaptive"}}, "thinking.type", "invalid_value"),
    ({"thinking": {"type": "enabled"}, "reasoning_effort": "none"}, "thinking", "invalid_value"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5}, "thinking_token_budget": 5},
     "thinking_token_budget", "invalid_value"),
    ({"thinking": {"type": "disabled", "budget_tokens": 5}}, "thinking.budget_tokens",
     "invalid_value"),
    ({"thinking_token_budget": -2}, "thinking_token_budget", "invalid_value"),
    ({"thinking_token_budget": 5}, "thinking_token_budget", "unsupported_parameter"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
     "messages[0].content[0].type", "unsupported_parameter"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]},
     "messages[0].content[0].text", "missing_field"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
    ({"messages": [{"role": "user", "content": "x\ufdd0"}]}, "messages[0]", "invalid_value"),
    ({"messages": [{"role": "user", "content": "x" * 400}]}, "messages",
     "context_length_exceeded"),
    ({"chat_template_kwargs": {"a": [[]]}, "messages": [{"role": "user", "content": "x" * 400}]},
     "messages", "context_length_exceeded"),
    ({"chat_template_kwargs": _NESTED}, "chat_template_kwargs", "invalid_value"),
    ({"logprobs": 1}, "logprobs", "invalid_type"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs", "invalid_value"),
    ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
    # The core's programs are from before there were alternatives.
    ({"logprobs": True, "top_logprobs": 3}, "top_logprobs", "unsupported_parameter"),
    ({"return_token_timestamps": True}, "return_token_timestamps", "invalid_value"),
    ({"echo": True}, "echo", "unsupported_parameter"),
]  # fmt: skip

COMPLETION_ONLY: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": None}, "prompt", "invalid_type"),
    ({"prompt": {"a": 1}}, "prompt", "invalid_type"),
    ({"prompt": ""}, "prompt", "invalid_value"),
    ({"prompt": []}, "prompt", "invalid_value"),
    ({"prompt": ["a", 5]}, "prompt", "invalid_value"),
    ({"prompt": [[1], 5]}, "prompt", "invalid_value"),
    ({"prompt": ["a"] * 257}, "prompt", "invalid_value"),
    ({"prompt": ["a"] * 129, "n": 2}, "n", "invalid_value"),
    ({"prompt": ["a", "b", "", "c"]}, "prompt[2]", "invalid_value"),
    ({"prompt": [[1], [2, 100_000]]}, "prompt[1]", "invalid_value"),
    ({"prompt": ["a", "x" * 400]}, "prompt[1]", "context_length_exceeded"),
    ({"prompt": [[]]}, "prompt[0]", "invalid_value"),
    ({"prompt": ["a", "x" * 100], "max_tokens": 200}, "max_tokens", "context_length_exceeded"),
    ({"prompt": [[1, True]]}, "prompt[0][1]", "invalid_type"),
    ({"prompt": [1, 100_000]}, "prompt", "invalid_value"),
    ({"prompt": "x" * 400}, "prompt", "context_length_exceeded"),
    ({"echo": True, "logprobs": 0}, "logprobs", "unsupported_parameter"),
    (
        {"echo": True, "logprobs": 0, "prompt_logprobs": 1},
        "prompt_logprobs",
        "unsupported_parameter",
    ),
    ({"echo": True, "max_tokens": -1}, "max_tokens", "invalid_value"),
    ({"echo": "yes"}, "echo", "invalid_type"),
    ({"logprobs": 2}, "logprobs", "unsupported_parameter"),
    ({"logprobs": 21}, "logprobs", "invalid_value"),
    ({"logprobs": -1}, "logprobs", "invalid_value"),
    ({"top_logprobs": 2}, "top_logprobs", "unsupported_parameter"),
    ({"return_token_ids": True}, "return_token_ids", "unsupported_parameter"),
    ({"return_token_timestamps": True}, "return_token_timestamps", "unsupported_parameter"),
    ({"logprobs": True}, "logprobs", "invalid_type"),
]


@pytest.mark.clause("HTTP-7", "OBS-4", "STOP-1")
@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        *((CHAT_PATH, CHAT | more, param, code) for more, param, code in SHARED + CHAT_ONLY),
        *(
            (COMPLETION_PATH, COMPLETION | more, param, code)
            for more, param, code in SHARED + COMPLETION_ONLY
        ),
    ],
)
def test_a_refusal_names_the_field(
    server: RunningServer, path: str, body: dict[str, Any], param: str, code: str
) -> None:
    error = _refusal(server, server.http.post(path, json=body), 400)
    assert (error["param"], error["code"]) == (param, code)
    assert param.split("[")[0].split(".")[0] in error["message"]


@pytest.mark.parametrize(
    ("path", "field"), [(CHAT_PATH, "messages"), (COMPLETION_PATH, "prompt"), (CHAT_PATH, "model")]
)
def test_missing_fields_are_named(server: RunningServer, path: str, field: str) -> None:
    body = (CHAT if path == CHAT_PATH else COMPLETION).copy()
    del body[field]
    error = _refusal(server, server.http.post(path, json=body), 400)
    assert (error["param"], error["code"]) == (field, "missing_field")


def test_too_long_prompts_say_how_long(server: RunningServer) -> None:
    body = COMPLETION | {"prompt": [5] * 300}
    message = _refusal(server, server.http.post(COMPLETION_PATH, json=body), 400)["message"]
    assert "300 tokens" in message
    assert "256" in message
    assert "255" in message


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETION_PATH])
def test_unknown_models_are_not_found(server: RunningServer, path: str) -> None:
    body = (CHAT if path == CHAT_PATH else COMPLETION) | {"model": "other"}
    error = _refusal(server, server.http.post(path, json=body), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "sample" in error["message"]


def test_large_bodies_are_refused_by_their_declared_size(server: RunningServer) -> None:
    error = _refusal(server, server.http.post(CHAT_PATH, content=b" " * 10_001), 413)
    assert error["code"] == "body_too_large"


def test_large_bodies_are_refused_while_they_arrive(server: RunningServer) -> None:
    chunks = iter([b" " * 6000, b" " * 6000])
    error = _refusal(server, server.http.post(CHAT_PATH, content=chunks), 413)
    assert "10000 bytes" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/models/other", 404),
        ("POST", "/v1/completions/", 404),
        ("GET", "/health/", 404),
    ],
)
def test_unknown_routes_and_methods(
    server: RunningServer, method: str, path: str, status: int
) -> None:
    _refusal(server, server.http.request(method, path), status)


def test_nothing_invalid_reaches_the_worker(server: RunningServer) -> None:
    before = len(server.client.submitted)
    server.http.post(CHAT_PATH, json=CHAT | {"temperature": 9})
    assert len(server.client.submitted) == before


def test_what_isn_t_supported_is_to_be_left_out(server: RunningServer) -> None:
    response = server.http.post(CHAT_PATH, json=CHAT | {"use_beam_search": True})
    message = _refusal(server, response, 400)["message"]
    assert message == "use_beam_search is not supported. Leave it out"


def test_one_of_several_prompts_is_named_whatever_is_wrong_with_it(server: RunningServer) -> None:
    body = COMPLETION | {"prompt": ["a", "x" * 100, "b"], "max_tokens": 200}
    message = _refusal(server, server.http.post(COMPLETION_PATH, json=body), 400)["message"]
    assert message.startswith("max_tokens: ")
    assert "(prompt[1])" in message
