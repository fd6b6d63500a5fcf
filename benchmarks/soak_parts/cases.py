"""The requests that a soak repeats, and what of an answer must be the same each time.

A case is deterministic: greedy, or with a seed. `content` reduces an answer, whole or streamed, to
what may not depend on what else the server does; counts of reused tokens and times are left out.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from .wire import Answer

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
# A choice: text, tokens or ids, logprobs, likeliest tokens, finish reason.
Choice = tuple[str, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], str]
# Choices, then prompt and output tokens.
Content = tuple[tuple[Choice, ...], int, int]

_WORDS = (
    "river", "stone", "cloud", "paper", "window", "garden", "copper", "silent", "morning",
    "letter", "engine", "harbour", "yellow", "winter", "market", "thunder", "velvet", "orange",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A request without `stream`."""

    kind: str
    path: str
    body: dict[str, Any]

    def streamed(self) -> dict[str, Any]:
        """The body that asks for a stream."""
        return self.body | {"stream": True, "stream_options": {"include_usage": True}}


def make_cases(model: str, count: int, longest_words: int, source: random.Random) -> list[Case]:
    """So many cases of all kinds in turn. Prompts begin with one of a few documents, so that many
    share a part."""
    documents = [_words(longest_words, source) for _ in range(12)]
    makers = (_plain, _sampled, _choices, _stops, _observed, _likeliest)
    cases = []
    for index in range(count):
        length = source.choice((0, 2, longest_words // 4, longest_words))
        shared = source.choice(documents)[:length]
        prompt = " ".join([*shared, *_words(source.choice((1, 3, 9)), source)])
        limit = source.choice((1, 3, 10, 30, 80, 200))
        body = {"model": model, "max_tokens": limit, "seed": source.randrange(1 << 63)}
        cases.append(makers[index % len(makers)](body, prompt, source))
    return cases


def _words(count: int, source: random.Random) -> list[str]:
    return [source.choice(_WORDS) for _ in range(count)]


def _plain(body: dict[str, Any], prompt: str, source: random.Random) -> Case:
    return Case("plain", COMPLETIONS, body | {"prompt": prompt, "temperature": 0, "logprobs": 0})


def _sampled(body: dict[str, Any], prompt: str, source: random.Random) -> Case:
    sampling = {
        "temperature": 0.9,
        "top_k": source.choice((0, 20)),
        "top_p": 0.95,
        "min_p": source.choice((0.0, 0.02)),
        "frequency_penalty": 0.5,
        "presence_penalty": -0.25,
        "repetition_penalty": 1.125,
        "logit_bias": {str(source.randrange(40, 200)): 2.0},
        "min_tokens": source.randrange(body["max_tokens"] + 1),
        "logprobs": 0,
    }
    return Case("sampled", COMPLETIONS, body | {"prompt": prompt} | sampling)


def _choices(body: dict[str, Any], prompt: str, source: random.Random) -> Case:
    several = {"n": source.choice((2, 3, 5)), "logprobs": 0}
    return Case("choices", COMPLETIONS, body | {"prompt": prompt} | several)


def _stops(body: dict[str, Any], prompt: str, source: random.Random) -> Case:
    stop = source.sample(["e", " a", "s", "o", "th", "\n", "xy"], 3)
    return Case("stops", COMPLETIONS, body | {"prompt": prompt, "stop": stop, "logprobs": 0})


def _observed(body: dict[str, Any], prompt: str, source: random.Random) -> Case:
    messages = [{"role": "user", "content": prompt}]
    observed = {"messages": messages, "return_token_ids": True, "return_token_timestamps": True}
    return Case("observed", CHAT, body | observed)


def _likeliest(body: dict[str, Any], prompt: str, source: random.Random) -> Case:
    return Case("likeliest", COMPLETIONS, body | {"prompt": prompt, "logprobs": 5})


def score_case(model: str, source: random.Random) -> Case:
    """A prompt whose own tokens are scored, as evaluation harnesses ask for it."""
    prompt = " ".join(_words(12, source))
    body = {"model": model, "prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1}
    return Case("scores", COMPLETIONS, body | {"temperature": 0})


def content(answer: Answer, *, stream: bool) -> Content:
    """What must be the same each time."""
    if not stream:
        body = answer.json()
        return _content([body["choices"]], body["usage"])
    *events, done = answer.events()
    if done != "[DONE]":
        raise ValueError(f"the stream ended with {done:.200}")
    chunks = [json.loads(event) for event in events]
    usage = next(chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage"))
    return _content([chunk["choices"] for chunk in chunks], usage)


def _content(chunks: list[list[dict[str, Any]]], usage: dict[str, Any]) -> Content:
    found: dict[int, list[dict[str, Any]]] = {}
    for choices in chunks:
        for choice in choices:
            found.setdefault(choice["index"], []).append(choice)
    every = tuple(_choice(found[index]) for index in sorted(found))
    return every, usage["prompt_tokens"], usage["completion_tokens"]


def _choice(parts: list[dict[str, Any]]) -> Choice:
    text, tokens, logprobs, likeliest = "", [], [], []
    finish = ""
    for part in parts:
        said = part.get("message") or part.get("delta") or {}
        text += part.get("text") or said.get("content") or ""
        tokens += part.get("token_ids") or []
        shown = part.get("logprobs") or {}
        tokens += shown.get("tokens") or []
        logprobs += shown.get("token_logprobs") or []
        likeliest += [tuple((one or {}).items()) for one in shown.get("top_logprobs") or []]
        finish = part.get("finish_reason") or finish
    return text, tuple(tokens), tuple(logprobs), tuple(likeliest), finish
