"""Answers of a form over HTTP, from a whole server over a real core."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from tests.engine.schemas import SCHEMAS, fits
from tests.server.real import ServerProcess

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "the weather"}]}
# White space is any JSON's, and this model likes it.
DENSE = {str(token): -100 for token in (200, 201, 204, 223)}


def body(index: int, **fields: Any) -> dict[str, Any]:
    schema = {"name": "answer", "schema": SCHEMAS[index], "strict": True}
    return {
        **CHAT,
        "max_tokens": 200,
        "temperature": 1.0,
        "seed": 5,
        "logit_bias": DENSE,
        "response_format": {"type": "json_schema", "json_schema": schema},
        **fields,
    }


def post(server: ServerProcess, sent: dict[str, Any]) -> dict[str, Any]:
    answer = server.http.post("/v1/chat/completions", json=sent)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def shown(answer: dict[str, Any]) -> list[object]:
    return [[c["message"], c["finish_reason"], c["logprobs"]] for c in answer["choices"]]


@pytest.mark.clause("FRONT-14")
def test_several_kinds_of_requests_at_once_get_what_they_get_alone(
    real_server: ServerProcess,
) -> None:
    asked = [body(index, logprobs=True, top_logprobs=2) for index in range(len(SCHEMAS))]
    asked += [
        {**CHAT, "max_tokens": 40, "temperature": 1.0, "seed": seed, "logprobs": True}
        for seed in range(4)
    ]
    alone = [shown(post(real_server, one)) for one in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda one: shown(post(real_server, one)), asked))
    assert together == alone
    for index, schema in enumerate(SCHEMAS):
        (message, finish, logprobs) = alone[index][0]  # type: ignore[misc]
        assert finish == "stop"
        assert fits(json.loads(message["content"]), schema)
        spelled = "".join(token["token"] for token in logprobs["content"])
        assert spelled.startswith(message["content"])
    metrics = real_server.metrics()
    assert metrics["flare_constrained_max_inflight"] == 1
    assert metrics["flare_mixed_grammar_decode_steps_total"] > 0
    assert metrics["flare_grammar_forced_tokens_total"] > 0
    assert metrics["flare_grammar_mask_seconds_total"] > 0
    assert metrics["flare_grammar_compiled_total"] >= len(SCHEMAS)


def test_a_stream_adds_up_to_the_same(real_server: ServerProcess) -> None:
    whole = post(real_server, body(0))
    content = ""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    usage = None
    with real_server.http.stream("POST", "/v1/chat/completions", json=body(0, **options)) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line.removeprefix("data: "))
                usage = chunk.get("usage") or usage
                for choice in chunk["choices"]:
                    content += choice["delta"].get("content") or ""
    assert content == whole["choices"][0]["message"]["content"]
    assert usage is not None
    assert usage["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_forced_tokens_count_as_generated(real_server: ServerProcess) -> None:
    observed = body(
        4, logprobs=True, return_token_ids=True, return_token_timestamps=True, max_tokens=200
    )
    answer = post(real_server, observed)
    (choice,) = answer["choices"]
    tokens, times = choice["token_ids"], choice["token_timestamps_ns"]
    assert len(tokens) == len(times) == answer["usage"]["completion_tokens"]
    assert times == sorted(times)
    assert len(set(times)) < len(times), "some came together"
    # The end of the sequence has no place among the content's logprobs.
    assert len(choice["logprobs"]["content"]) in (len(tokens), len(tokens) - 1)


def test_choices_are_those_of_their_seeds(real_server: ServerProcess) -> None:
    several = post(real_server, body(0, n=3))
    alone = [post(real_server, body(0, seed=5 + index)) for index in range(3)]
    assert [c["message"] for c in several["choices"]] == [
        one["choices"][0]["message"] for one in alone
    ]
    for choice in several["choices"]:
        assert fits(json.loads(choice["message"]["content"]), SCHEMAS[0])


@pytest.mark.parametrize("limit", [1, 3, 9])
def test_the_limit_cuts_and_says_so(real_server: ServerProcess, limit: int) -> None:
    whole = post(real_server, body(0))["choices"][0]["message"]["content"]
    answer = post(real_server, body(0, max_tokens=limit))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == limit
    assert whole.startswith(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("field", "value", "begins"),
    [
        ("structured_outputs", {"choice": ["left", "right"]}, ("left", "right")),
        ("guided_regex", "(on|off)-[0-9]{2}", ("on-", "off-")),
        ("ebnf", 'root ::= "yes" | "no"', ("yes", "no")),
    ],
)
def test_completions_have_forms_too(
    real_server: ServerProcess, field: str, value: object, begins: tuple[str, ...]
) -> None:
    sent = {"model": "tiny", "prompt": "the", "max_tokens": 30, "seed": 3, field: value}
    answer = real_server.http.post("/v1/completions", json=sent)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["text"].startswith(begins)


def test_strings_that_stop_go_with_no_form(real_server: ServerProcess) -> None:
    answer = real_server.http.post("/v1/chat/completions", json=body(0, stop="}"))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stop"


def test_a_client_that_goes_frees_its_slot(real_server: ServerProcess) -> None:
    with real_server.http.stream(
        "POST", "/v1/chat/completions", json=body(1, stream=True)
    ) as stream:
        assert list(islice(stream.iter_lines(), 1))
    real_server.metrics_until(lambda metrics: metrics["flare_slots_used"] == 0)
    assert fits(
        json.loads(post(real_server, body(1))["choices"][0]["message"]["content"]), SCHEMAS[1]
    )


DEAD_END = {"guided_grammar": 'start: "abababababab" X\nX: /b/ & /c/'}
# A l and an e of "left", and no more.
EXCLUDED = {"guided_choice": ["left"], "allowed_token_ids": [78, 71]}


@pytest.mark.tiny_model
@pytest.mark.parametrize(
    ("more", "param"),
    [(DEAD_END, "guided_grammar"), (EXCLUDED, "allowed_token_ids")],
    ids=["dead end", "allowed"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_leads_nowhere_is_its_clients_error(
    real_server: ServerProcess, more: dict[str, Any], param: str, stream: bool
) -> None:
    sent = {"model": "tiny", "prompt": "the", "max_tokens": 30}
    before = real_server.metrics()
    answer = real_server.http.post("/v1/completions", json={**sent, **more, "stream": stream})
    assert answer.status_code == (200 if stream else 400)
    *_, last = answer.text.strip().split("\n\n")
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, "grammar_dead_end")
    assert "after " in error["message"]
    assert "[DONE]" not in answer.text
    after = real_server.metrics_until(lambda metrics: metrics["flare_slots_used"] == 0)
    ended = "flare_requests_finished_total"
    assert after[f'{ended}{{reason="grammar"}}'] == before[f'{ended}{{reason="grammar"}}'] + 1
    assert after[f'{ended}{{reason="failed"}}'] == 0
    assert real_server.http.post("/v1/completions", json=sent).status_code == 200


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"guided_choice": ["left"], "allowed_token_ids": [90, 91]}, "allowed_token_ids"),
        ({"guided_choice": ["left", "äb"], "min_tokens": 5}, "min_tokens"),
        ({"guided_regex": "[a-z]+", "stop_token_ids": [78]}, "stop_token_ids[0]"),
    ],
    ids=str,
)
def test_what_a_form_cannot_be_together_with_is_refused(
    real_server: ServerProcess, more: dict[str, Any], param: str
) -> None:
    sent = {"model": "tiny", "prompt": "the", "max_tokens": 9, "n": 2, **more}
    before = real_server.metrics()["flare_requests_submitted_total"]
    answer = real_server.http.post("/v1/completions", json=sent)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, "invalid_value")
    assert next(field for field in more if field.startswith("guided")) in error["message"]
    assert real_server.metrics()["flare_requests_submitted_total"] == before


@pytest.mark.parametrize(
    "more",
    [
        {"logit_bias": {"78": -100}},
        {"bad_words": ["left"]},
        {"min_tokens": 4},
        {"ignore_eos": True},
        {"presence_penalty": 2, "frequency_penalty": 2, "repetition_penalty": 10},
    ],
    ids=str,
)
def test_what_weighs_or_gives_way_leaves_a_form_alone(
    real_server: ServerProcess, more: dict[str, Any]
) -> None:
    sent = {"model": "tiny", "prompt": "the", "max_tokens": 9, "guided_choice": ["left"], **more}
    answer = real_server.http.post("/v1/completions", json=sent)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["text"] == "left"
    assert choice["finish_reason"] == ("length" if "ignore_eos" in more else "stop")


def test_the_model_says_that_it_can(real_server: ServerProcess) -> None:
    (model, *_) = real_server.http.get("/v1/models").json()["data"]
    assert model["capabilities"]["structured_output"] is True
