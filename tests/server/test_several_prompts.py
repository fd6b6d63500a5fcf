"""Several prompts in one completions request: numbers of choices, sums, the one permit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.frontend.prepare import CHOICES_LIMIT
from tests.server import scoring
from tests.server.scripted import RunningServer, running_server

PATH = "/v1/completions"
TEXTS = ("hello", "hello", "ab c", "w", "xyzzy hello")
IDS = [scoring.ENCODE(text) for text in TEXTS]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(scoring.repeats, frontend=scoring.FRONTEND, permits=1) as running:
        yield running


def post(server: RunningServer, **body: Any) -> dict[str, Any]:
    response = server.http.post(PATH, json={"model": "sample", **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(server: RunningServer, **body: Any) -> list[dict[str, Any]]:
    sent = {"model": "sample", "stream": True, **body}
    with server.http.stream("POST", PATH, json=sent) as response:
        assert response.status_code == 200
        lines = [line for line in response.iter_lines() if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


prompts = st.lists(
    st.integers(0, len(TEXTS) - 1).flatmap(lambda i: st.sampled_from([TEXTS[i], IDS[i]])),
    min_size=1,
    max_size=7,
)


@settings(deadline=None, max_examples=40)
@given(prompts=prompts, n=st.integers(1, 4), seed=st.integers(0, 9))
def test_choices_are_numbered_prompt_by_prompt(
    server: RunningServer, prompts: list[Any], n: int, seed: int
) -> None:
    """Answer j to prompt i has the number i · n + j, and is what prompt i gets alone with the seed
    plus j."""
    del server.client.submitted[:]
    body = post(server, prompt=prompts, n=n, seed=seed)
    submitted = list(server.client.submitted)
    assert [choice["index"] for choice in body["choices"]] == list(range(len(prompts) * n))
    for index, (choice, asked) in enumerate(zip(body["choices"], submitted, strict=True)):
        prompt, j = prompts[index // n], index % n
        assert asked.prompt_tokens == (
            scoring.ENCODE(prompt) if isinstance(prompt, str) else prompt
        )
        assert asked.sampling.seed == seed + j
        leader = submitted[index - j]
        assert asked.sibling_of == (None if j == 0 else leader.request_id)
        said = TEXTS[IDS.index(asked.prompt_tokens)][-1] if asked.prompt_tokens[1:] else ""
        if len(asked.prompt_tokens) > 1 and said != "o":  # "hello" is one token
            assert choice["text"] == said * ((seed + j) % 5)
    usage = body["usage"]
    assert usage["prompt_tokens"] == sum(len(one.prompt_tokens) for one in submitted[::n])
    assert usage["completion_tokens"] == sum((seed + i % n) % 5 + 1 for i in range(len(submitted)))
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@settings(deadline=None, max_examples=25)
@given(
    prompts=prompts,
    n=st.integers(1, 3),
    seed=st.integers(0, 9),
    more=st.fixed_dictionaries(
        {},
        optional={
            "echo": st.booleans(),
            "logprobs": st.integers(0, 3),
            "prompt_logprobs": st.integers(0, 3),
            "max_tokens": st.just(1),
        },
    ),
)
def test_a_stream_says_what_the_whole_answer_does(
    server: RunningServer, prompts: list[Any], n: int, seed: int, more: dict[str, Any]
) -> None:
    whole = post(server, prompt=prompts, n=n, seed=seed, **more)
    options = {"include_usage": True}
    *chunks, usage = stream(server, prompt=prompts, n=n, seed=seed, stream_options=options, **more)
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        (part,) = chunk["choices"]
        choice = found.setdefault(part["index"], {"text": "", "logprobs": {}})
        first = not choice["text"] and not choice["logprobs"] and "finish_reason" not in choice
        assert ("prompt_logprobs" in part) <= first
        choice["text"] += part["text"]
        choice["finish_reason"] = part["finish_reason"]
        if "prompt_logprobs" in part:
            choice["prompt_logprobs"] = part["prompt_logprobs"]
        for name, values in (part["logprobs"] or {}).items():
            kept = choice["logprobs"].setdefault(name, None if values is None else [])
            if values is not None:
                kept += values
    for choice in whole["choices"]:
        told = found.pop(choice["index"])
        assert told["text"] == choice["text"]
        assert told["finish_reason"] == choice["finish_reason"]
        assert told.get("prompt_logprobs") == choice.get("prompt_logprobs")
        assert (told["logprobs"] or None) == choice["logprobs"]
    assert not found


def test_a_stream_interleaves_prompts(server: RunningServer) -> None:
    chunks = stream(server, prompt=["ab c", "ab c", "w"], seed=4)
    order = [chunk["choices"][0]["index"] for chunk in chunks]
    assert set(order) == {0, 1, 2}
    assert order != sorted(order)


def test_all_of_them_take_one_permit(server: RunningServer) -> None:
    """The server has one."""
    assert len(post(server, prompt=["a"] * 9, n=4, seed=1)["choices"]) == 36


def test_as_many_as_there_may_be(server: RunningServer) -> None:
    assert len(post(server, prompt=[[5]] * 256, seed=1)["choices"]) == 256
    assert len(post(server, prompt=["a", "b"], n=CHOICES_LIMIT, seed=1)["choices"]) == 256


def test_a_list_of_one_is_that_one(server: RunningServer) -> None:
    for one in ("ab c", IDS[2]):
        alone, listed = (post(server, prompt=p, seed=2) for p in (one, [one]))
        assert alone["choices"] == listed["choices"]


def test_without_a_seed_each_prompt_draws_its_own(server: RunningServer) -> None:
    del server.client.submitted[:]
    post(server, prompt=["a", "a", "a"])
    assert len({one.sampling.seed for one in server.client.submitted}) == 3


def test_rendering_takes_one_prompt(server: RunningServer) -> None:
    body = {"model": "sample", "prompt": ["a", "b"]}
    response = server.http.post("/v1/render", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"
    assert server.http.post("/v1/render", json=body | {"prompt": ["a"]}).status_code == 200
