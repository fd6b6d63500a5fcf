"""A client's session with a server, whoever wrote the client: what is asked, what comes of it, and
what a client must be able to do.

`adapters` has a `Client` for each library, in that library's own words; `test_sessions` asks every
one of them the same and compares it with what plain HTTP says (`Http`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import httpx

MODEL: Final = "smollm2-135m-instruct"
NO_KEY: Final = "none"  # what libraries send that insist on a key, to a server that has none
DEADLINE_S: Final = 120.0


@dataclass(frozen=True)
class At:
    """A server's address, without `/v1`, and the key that it asks for."""

    url: str
    key: str | None = None

    @property
    def api(self) -> str:
        """The base URL that OpenAI's libraries take."""
        return f"{self.url}/v1"


@dataclass(frozen=True)
class Ask:
    """A chat request in what all clients have in common."""

    text: str = "Name three colours."
    model: str = MODEL
    max_tokens: int = 24
    temperature: float = 0.0
    seed: int | None = None
    n: int | None = None
    stop: str | None = None
    top_logprobs: int | None = None

    def options(self) -> dict[str, Any]:
        """OpenAI's fields but for model and messages, where they are set."""
        fields = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "n": self.n,
            "stop": self.stop,
            "logprobs": self.top_logprobs is not None or None,
            "top_logprobs": self.top_logprobs,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def messages(self) -> list[dict[str, str]]:
        """OpenAI's messages."""
        return [{"role": "user", "content": self.text}]

    def body(self) -> dict[str, Any]:
        """OpenAI's body."""
        return {"model": self.model, "messages": self.messages(), **self.options()}


@dataclass(frozen=True)
class Answer:
    """What a client shows of an answer. `finish` and `logprobs` are empty where it shows none, and
    so are those of requests that ask for none."""

    texts: tuple[str, ...]
    prompt_tokens: int
    completion_tokens: int
    finish: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Refusal:
    """How a client says that a request was refused: its exception's name, and what that knows of
    the error's status, code and field."""

    kind: str
    status: int | None = None
    code: str | None = None
    param: str | None = None


class Client(Protocol):
    """A library as a client. `lacks` says what it can't do or show, and why: `models`, `choices`,
    `logprobs`, `streamed finish`, `code`. `kinds` are its exceptions by status,
    `too_long` the one for a prompt that doesn't fit."""

    lacks: Mapping[str, str]
    kinds: Mapping[int, str]
    too_long: str

    def models(self, at: At) -> list[str]:
        """The ids of the server's models."""

    def chat(self, at: At, ask: Ask) -> Answer:
        """A whole answer."""

    def stream(self, at: At, ask: Ask) -> Answer:
        """The same in pieces, put together."""

    def abandon(self, at: At, ask: Ask, pieces: int) -> None:
        """Begins to stream and goes away after so many pieces."""

    def together(self, at: At, asks: Sequence[Ask]) -> list[Answer]:
        """Whole answers to requests that are under way at once."""

    def refusal(self, at: At, ask: Ask) -> Refusal:
        """What comes of a request that is refused."""


class Http:
    """Plain HTTP: what the others are compared with."""

    def __init__(self, at: At) -> None:
        headers = {} if at.key is None else {"authorization": f"Bearer {at.key}"}
        self.http = httpx.Client(base_url=at.url, headers=headers, timeout=DEADLINE_S)

    def models(self) -> list[str]:
        """The ids of the server's models."""
        return [model["id"] for model in self.http.get("/v1/models").json()["data"]]

    def chat(self, ask: Ask) -> Answer:
        """A whole answer."""
        response = self.http.post("/v1/chat/completions", json=ask.body())
        assert response.status_code == 200, response.text
        body = response.json()
        choices, usage = body["choices"], body["usage"]
        entries = (choices[0]["logprobs"] or {}).get("content", [])
        return Answer(
            tuple(choice["message"]["content"] for choice in choices),
            usage["prompt_tokens"],
            usage["completion_tokens"],
            tuple(choice["finish_reason"] for choice in choices),
            tuple(entry["logprob"] for entry in entries),
            tuple(tuple(top["logprob"] for top in entry["top_logprobs"]) for entry in entries),
        )

    def refusal(self, ask: Ask) -> tuple[int, str | None, str | None]:
        """Status, code and field of a request that is refused."""
        response = self.http.post("/v1/chat/completions", json=ask.body())
        error = response.json()["error"]
        return response.status_code, error["code"], error["param"]
