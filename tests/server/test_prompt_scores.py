"""Prompts shown as the beginning of their answers, and what is said of their tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from helios.server.lifecycle import RequestEvent
from helios.worker.messages import FailedEvent, Finish, Submit, TokensEvent
from tests.frontend.vocabularies import byte_level_frontend
from tests.server import scoring
from tests.server.scripted import RunningServer, running_server

PLAIN, CHAT = "/v1/completions", "/v1/chat/completions"
TEXT = "hello wé<|im_end|>x"
TOKENS = scoring.ENCODE(TEXT)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(scoring.repeats, frontend=scoring.FRONTEND) as running:
        yield running


def complete(server: RunningServer, **body: Any) -> dict[str, Any]:
    response = server.http.post(PLAIN, json={"model": "sample", "prompt": TEXT, "seed": 2, **body})
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return dict(choice) | {"usage": response.json()["usage"]}


def chat(server: RunningServer, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hello"}]
    response = server.http.post(CHAT, json={"model": "sample", "messages": messages, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def spellings(tokens: list[int]) -> list[str]:
    spell = scoring.FRONTEND.tokenizer.token_bytes
    return [spell(token).decode(errors="replace") for token in tokens]


def test_an_echo_is_the_prompt_as_it_was_sent_and_then_the_answer(server: RunningServer) -> None:
    assert complete(server)["text"] == "xx"
    choice = complete(server, echo=True)
    assert choice["text"] == TEXT + "xx"
    assert choice["logprobs"] is None
    assert choice["usage"]["completion_tokens"] == 3
    assert not server.client.submitted[-1].score_prompt
    assert complete(server, prompt=TOKENS, echo=True)["text"] == TEXT + "xx"


def test_an_echo_of_half_a_character(server: RunningServer) -> None:
    half = scoring.FRONTEND.tokenizer.library.token_to_id("Ã")
    choice = complete(server, prompt=[TOKENS[0], half], echo=True, max_tokens=0)
    assert choice["text"] == "hello\N{REPLACEMENT CHARACTER}"


def test_logprobs_of_an_echo_begin_with_null(server: RunningServer) -> None:
    logprobs = complete(server, echo=True, logprobs=0)["logprobs"]
    said = [TOKENS[-1]] * 2
    assert logprobs["tokens"][:-1] == spellings(TOKENS + said)
    scores = [scoring.score(place, token) for place, token in enumerate(TOKENS)]
    assert logprobs["token_logprobs"] == [None, *scores[1:], -0.5, -0.5, -0.5]
    assert logprobs["top_logprobs"] is None
    places = [0]
    for spelled in spellings(TOKENS + said)[:-1]:
        places.append(places[-1] + len(spelled))
    assert logprobs["text_offset"] == [*places, len(TEXT) + 2]


@pytest.mark.parametrize("wanted", [1, 3])
def test_the_likeliest_are_shown_at_prompt_tokens_too(server: RunningServer, wanted: int) -> None:
    logprobs = complete(server, echo=True, logprobs=wanted)["logprobs"]
    first, *others = logprobs["top_logprobs"]
    assert first is None
    assert len(logprobs["top_logprobs"]) == len(logprobs["tokens"])
    likeliest = dict(zip("wxyz", scoring.likeliest(wanted)[1], strict=False))
    for place, there in enumerate(others[: len(TOKENS) - 1], 1):
        own = spellings(TOKENS)[place]
        expected = {own: scoring.score(place, TOKENS[place])} | likeliest
        assert there == expected
    assert server.client.submitted[-1].prompt_top_logprobs == wanted
    assert server.client.submitted[-1].sampling.top_logprobs == wanted


@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_a_limit_of_0_scores_and_says_nothing(server: RunningServer, logprobs: int | None) -> None:
    choice = complete(server, echo=True, logprobs=logprobs, max_tokens=0, stop="x")
    assert choice["text"] == TEXT
    assert choice["finish_reason"] == "length"
    assert choice["usage"]["completion_tokens"] == 0
    assert choice["usage"]["total_tokens"] == len(TOKENS)
    asked = server.client.submitted[-1]
    assert (asked.output_limit, asked.eos_ids, asked.stops) == (1, [], None)
    if logprobs is not None:
        assert len(choice["logprobs"]["tokens"]) == len(TOKENS)


def test_a_limit_of_0_wants_something_to_show(server: RunningServer) -> None:
    body = {"model": "sample", "prompt": TEXT, "max_tokens": 0}
    error = server.http.post(PLAIN, json=body).json()["error"]
    assert error["param"] == "max_tokens"
    assert "echo or prompt_logprobs" in error["message"]
    scored = complete(server, max_tokens=0, prompt_logprobs=0)
    assert (scored["text"], scored["finish_reason"]) == ("", "length")


@pytest.mark.parametrize("wanted", [0, 2])
def test_prompt_logprobs_are_by_id_with_ranks(server: RunningServer, wanted: int) -> None:
    """vLLM's shape."""
    answer = chat(server, prompt_logprobs=wanted, seed=1)
    chat_tokens = server.client.submitted[-1].prompt_tokens
    plain = complete(server, prompt_logprobs=wanted)
    assert plain["text"] == "xx"
    for tokens, told in (
        (chat_tokens, answer["prompt_logprobs"]),
        (TOKENS, plain["prompt_logprobs"]),
    ):
        assert told[0] is None
        assert len(told) == len(tokens)
        for place, (token, there) in enumerate(zip(tokens[1:], told[1:], strict=True), 1):
            assert next(iter(there)) == str(token)
            assert there[str(token)] == {
                "logprob": scoring.score(place, token),
                "rank": scoring.rank(place, token),
                "decoded_token": spellings([token])[0],
            }
            others = [int(key) for key in there if int(key) != token]
            assert others == [t for t in scoring.LIKELIEST[:wanted] if t != token]
            for other in others:
                at = scoring.LIKELIEST.index(other)
                assert there[str(other)] == {
                    "logprob": -0.25 * (at + 1),
                    "rank": at + 1,
                    "decoded_token": "wxyz"[at],
                }


def test_echo_and_prompt_logprobs_show_as_many_as_each_asks_for(server: RunningServer) -> None:
    choice = complete(server, echo=True, logprobs=1, prompt_logprobs=3)
    assert server.client.submitted[-1].prompt_top_logprobs == 3
    assert all(len(there) <= 2 for there in choice["logprobs"]["top_logprobs"][1:])
    assert any(len(there) == 4 for there in choice["prompt_logprobs"][1:])


def test_answers_without_them_have_no_such_field(server: RunningServer) -> None:
    assert "prompt_logprobs" not in complete(server, echo=True, logprobs=1)
    assert "prompt_logprobs" not in chat(server)


@pytest.mark.parametrize("path", [PLAIN, CHAT])
@pytest.mark.parametrize("leads_last", [False, True])
def test_choices_show_the_scores_that_the_first_one_hears(
    server: RunningServer, path: str, leads_last: bool
) -> None:
    """Even where another one has tokens before it does."""
    scored = asyncio.Event()

    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        if submit.sibling_of is None and leads_last:
            await scored.wait()
        yield scoring.first_event(submit, (TOKENS[-1],))
        scored.set()
        yield TokensEvent(submit.request_id, (TOKENS[-1],), (-0.5,), Finish.LIMIT)  # type: ignore[arg-type]

    server.client.script = script
    del server.client.submitted[:]
    body: dict[str, Any] = {"model": "sample", "n": 3, "prompt_logprobs": 1, "stream": True}
    body |= {"prompt": TEXT} if path == PLAIN else {"messages": [{"role": "user", "content": "a"}]}
    with server.http.stream("POST", path, json=body) as response:
        lines = [line for line in response.iter_lines() if line]
    server.client.script = scoring.repeats
    assert lines.pop() == "data: [DONE]"
    assert [one.score_prompt for one in server.client.submitted] == [True, False, False]
    first: dict[int, dict[str, Any]] = {}
    for line in lines:
        chunk = json.loads(line.removeprefix("data: "))
        (choice,) = chunk["choices"]
        first.setdefault(choice["index"], choice if path == PLAIN else chunk | choice)
    told = [first[index]["prompt_logprobs"] for index in range(3)]
    assert told[0] == told[1] == told[2]
    assert len(told[0]) == len(server.client.submitted[0].prompt_tokens)
    if path == CHAT:
        assert all(first[index]["delta"]["role"] == "assistant" for index in range(3))


def test_a_first_choice_that_fails_fails_those_that_wait_for_it(server: RunningServer) -> None:
    failing = asyncio.Event()

    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        if submit.sibling_of is None:
            await failing.wait()
            yield FailedEvent(submit.request_id, "it broke")
            return
        yield scoring.first_event(submit, (TOKENS[-1],))
        failing.set()
        yield TokensEvent(submit.request_id, (TOKENS[-1],), (-0.5,), Finish.LIMIT)  # type: ignore[arg-type]

    server.client.script = script
    body = {"model": "sample", "prompt": TEXT, "n": 2, "prompt_logprobs": 1}
    response = server.http.post(PLAIN, json=body)
    server.client.script = scoring.repeats
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "it broke"


def test_an_aborted_answer_ends_without_scores(server: RunningServer) -> None:
    begun = asyncio.Event()

    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        begun.set()
        await asyncio.Event().wait()
        yield scoring.first_event(submit, (1,))

    server.client.script = script
    headers = {"x-request-id": "to-be-ended"}
    body = {"model": "sample", "prompt": TEXT, "n": 2, "prompt_logprobs": 1, "stream": True}
    with server.http.stream("POST", PLAIN, json=body, headers=headers) as response:
        server.client.wait_until(lambda: server.client.running == 2)
        ended = server.http.post("/abort", json={"request_id": "to-be-ended"})
        assert ended.status_code == 200, ended.text
        lines = [line for line in response.iter_lines() if line]
    server.client.script = scoring.repeats
    assert lines.pop() == "data: [DONE]"
    finishes = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
    assert [one["finish_reason"] for one in finishes] == ["abort", "abort"]


def test_cores_from_before_score_without_the_likeliest() -> None:
    older = scoring.frontend(likeliest=False)
    with running_server(scoring.repeats, frontend=older) as server:
        assert complete(server, echo=True, logprobs=0)["logprobs"]["token_logprobs"][0] is None
        for more, param in (
            ({"echo": True, "logprobs": 1}, "logprobs"),
            ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ):
            body = {"model": "sample", "prompt": TEXT, **more}
            error = server.http.post(PLAIN, json=body).json()["error"]
            assert (error["param"], error["code"]) == (param, "unsupported_parameter")
            assert "Ask for 0 of them, or prepare the model again" in error["message"]


def test_cores_that_only_generate_echo_text_alone() -> None:
    with running_server(scoring.repeats, frontend=byte_level_frontend()) as server:
        assert complete(server, echo=True)["text"] == TEXT + "xx"
        body = {"model": "sample", "prompt": TEXT, "echo": True, "logprobs": 0}
        error = server.http.post(PLAIN, json=body).json()["error"]
        assert (error["param"], error["code"]) == ("logprobs", "unsupported_parameter")
