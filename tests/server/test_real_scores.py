"""Scores and several prompts through a real core in a real server, asked with the OpenAI SDK."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI

from tests.server.real import DEADLINE_S, ServerProcess

TEXT = "the quick brown fox jumps over the lazy dog and the river runs under the old bridge "


@pytest.fixture
def completions(real_server: ServerProcess) -> Any:
    url = real_server.url + "/v1"
    client = OpenAI(base_url=url, api_key="none", timeout=DEADLINE_S, max_retries=0)
    return client.with_options(max_retries=0).completions


def ask(completions: Any, prompt: Any, **more: Any) -> Any:
    options: dict[str, Any] = {"model": "tiny", "max_tokens": 6, "temperature": 0, "seed": 1}
    return completions.create(prompt=prompt, **options | more)


def test_an_echo_has_an_entry_for_each_token_of_its_prompt(
    real_server: ServerProcess, completions: Any
) -> None:
    count = real_server.http.post("/tokenize", json={"prompt": TEXT}).json()["count"]
    echoed = ask(completions, TEXT, max_tokens=0, echo=True, logprobs=3).choices[0]
    assert echoed.text == TEXT
    first, *others = echoed.logprobs.token_logprobs
    assert (first, len(others)) == (None, count - 1)
    for logprob, there in zip(others, echoed.logprobs.top_logprobs[1:], strict=True):
        assert logprob <= max(there.values()) <= 0
    longer = ask(completions, TEXT, echo=True, logprobs=3, extra_body={"ignore_eos": True})
    assert len(longer.choices[0].logprobs.token_logprobs) == count + 6
    assert longer.choices[0].logprobs.token_logprobs[:count] == echoed.logprobs.token_logprobs


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_together_get_what_they_get_alone(completions: Any, stream: bool) -> None:
    """With and without what the others have left in the prefix cache."""
    prompts = [TEXT, TEXT[:40], TEXT * 2, "x", TEXT]
    more: dict[str, Any] = {"echo": True, "logprobs": 2, "n": 2}
    alone = [choice for prompt in prompts for choice in ask(completions, prompt, **more).choices]
    if not stream:
        together = ask(completions, prompts, **more)
        assert [choice.index for choice in together.choices] == list(range(10))
        for choice, expected in zip(together.choices, alone, strict=True):
            assert (choice.text, choice.logprobs) == (expected.text, expected.logprobs)
        return
    texts = [""] * 10
    scores: list[list[float | None]] = [[] for _ in range(10)]
    for chunk in ask(completions, prompts, stream=True, **more):
        (choice,) = chunk.choices
        texts[choice.index] += choice.text
        scores[choice.index] += choice.logprobs.token_logprobs if choice.logprobs else []
    assert texts == [choice.text for choice in alone]
    assert scores == [choice.logprobs.token_logprobs for choice in alone]


def test_both_apis_score_in_one_shape(real_server: ServerProcess) -> None:
    body: dict[str, Any] = {"model": "tiny", "max_tokens": 1, "prompt_logprobs": 2}
    messages = [{"role": "user", "content": "hello"}]
    chat = real_server.http.post("/v1/chat/completions", json=body | {"messages": messages}).json()
    rendered = real_server.http.post("/v1/render", json=body | {"messages": messages}).json()
    ids = rendered["prompt_token_ids"]
    plain = real_server.http.post("/v1/completions", json=body | {"prompt": ids}).json()
    scores = plain["choices"][0]["prompt_logprobs"]
    assert scores == chat["prompt_logprobs"]
    assert scores[0] is None
    for token, there in zip(ids[1:], scores[1:], strict=True):
        told = there[str(token)]
        assert len(there) in (2, 3)
        assert (
            told["rank"] == 1 + sum(other["logprob"] > told["logprob"] for other in there.values())
            or told["rank"] > 2
        )
