"""`helios generate` and `helios chat`: answers in the terminal.

A speaker is what answers: a core in this process, or a server over HTTP. The conversation is the
same over both.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from helios.errors import ExecutionError, HeliosError
from helios.frontend.prepare import GenerationOptions
from helios.frontend.response.deltas import Reasoning
from helios.server.options.access import key_to_send

Messages = list[dict[str, str]]

# Nobody watches an answer to `--message`, and a small model may not stop before its context ends.
# A piece is a token, or a few where several arrive at once or make one character.
UNWATCHED_PIECES: Final = 1024


# How terminals show reasoning, and how they go on as before.
_DIM, _NORMAL = "\x1b[2m", "\x1b[22m"


class Thought(str):
    """A piece of reasoning, which a terminal shows dimmed; it is no part of the answer."""


class Speaker(Protocol):
    """Something that answers a conversation."""

    def answer(self, messages: Messages) -> Generator[str]:
        """The answer's text in pieces, as it grows, with thoughts among them. Closing it ends the
        answer."""


def generate_text(
    core: Path, accept: str, prompt: str, wanted: GenerationOptions, options: dict[str, Any]
) -> None:
    """Continues `prompt` on standard output, until the end or an interrupt."""
    from helios.engine import Engine

    with Engine.open(core, accept=accept, **options) as engine:
        _print_pieces(delta.text for delta in engine.stream(prompt, wanted))


def answer_once(
    speaker: Speaker, message: str, system: str | None, limit: int | None = None
) -> None:
    """Prints the answer to `message`, cut after `limit` pieces."""
    messages = [*_beginning(system), {"role": "user", "content": message}]
    _print_pieces(speaker.answer(messages), limit)


def converse(speaker: Speaker, system: str | None) -> None:
    """Answers what is typed, or each line that is piped in, until the input ends. An interrupt
    stops the answer; at the prompt it ends the conversation."""
    messages = _beginning(system)
    typed = sys.stdin.isatty() and sys.stdout.isatty()
    if typed:
        print("Ctrl-D ends the conversation, Ctrl-C stops an answer.", file=sys.stderr)
    while True:
        try:
            line = input("> " if typed else "")
        except (EOFError, KeyboardInterrupt):
            if typed:
                print()
            return
        if line.strip():
            messages.append({"role": "user", "content": line})
            answer = _print_pieces(speaker.answer(messages))
            messages.append({"role": "assistant", "content": answer})


def _beginning(system: str | None) -> Messages:
    return [] if system is None else [{"role": "system", "content": system}]


def _print_pieces(pieces: Generator[str], limit: int | None = None) -> str:
    """Prints pieces as they come, `limit` at most; returns the answer among them, without
    thoughts, which are printed on terminals alone. An interrupt ends it cleanly."""
    answer: list[str] = []
    thinking = cut = False
    count = 0
    terminal = sys.stdout.isatty()
    with closing(pieces):
        try:
            for piece in itertools.islice(pieces, limit):
                count += 1
                if not isinstance(piece, Thought):
                    answer.append(piece)
                elif not terminal:
                    continue
                if piece and isinstance(piece, Thought) != thinking:
                    thinking = not thinking
                    print(_DIM if thinking else f"{_NORMAL}\n", end="")
                print(piece, end="", flush=True)
            cut = count == limit and bool(next(pieces, ""))
        except KeyboardInterrupt:
            pass
    print(_NORMAL if thinking else "", flush=True)
    if cut:
        print(
            f"note: the answer was cut after {limit} pieces. --max-tokens sets another limit",
            file=sys.stderr,
        )
    return "".join(answer)


class CoreSpeaker:
    """Answers with a core in this process. `options` are further `WorkerOptions` fields."""

    def __init__(
        self, core: Path, accept: str, wanted: GenerationOptions, options: dict[str, Any]
    ) -> None:
        from helios.engine import Engine

        self._engine = Engine.open(core, accept=accept, **options)
        self._wanted = wanted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._engine.close()

    def answer(self, messages: Messages) -> Generator[str]:
        """The answer's text in pieces."""
        for delta in self._engine.stream_chat(messages, self._wanted):
            for part in delta.parts:
                if isinstance(part, Reasoning):
                    yield Thought(part.text)
            yield delta.text


class ServerSpeaker:
    """Answers with a running server; `url` is its address, with or without `/v1`, and its API key
    in HELIOS_API_KEY. Raises HeliosError where it isn't one for HTTP, or the key can't be sent."""

    def __init__(self, url: str, wanted: GenerationOptions) -> None:
        if not url.startswith(("http://", "https://")):
            raise HeliosError(
                f"{url!r} is no HTTP address", where="--server", remedy=f"Write http://{url}"
            )
        self._url = url.rstrip("/").removesuffix("/v1")
        self._wanted = wanted
        self._key = key_to_send(os.environ)
        self._model: str | None = None

    def answer(self, messages: Messages) -> Generator[str]:
        """The answer's text in pieces. Raises HeliosError with the server's own words."""
        if self._model is None:
            with closing(self._open("/v1/models", None)) as response:
                self._model = str(json.load(response)["data"][0]["id"])
        asked = {
            "max_tokens": self._wanted.max_tokens,
            "temperature": self._wanted.temperature,
            "seed": self._wanted.seed,
        }
        body = {"model": self._model, "messages": messages, "stream": True, **asked}
        with closing(self._open("/v1/chat/completions", body)) as response:
            yield from self._texts(response)

    def _texts(self, response: http.client.HTTPResponse) -> Iterator[str]:
        for line in response:
            event = line.removeprefix(b"data: ").strip()
            if event == b"[DONE]":
                return
            if not event:
                continue
            chunk = json.loads(event)
            if "error" in chunk:
                raise ExecutionError(chunk["error"]["message"], where=self._url)
            for choice in chunk["choices"]:
                if thought := choice["delta"].get("reasoning_content"):
                    yield Thought(thought)
                yield choice["delta"].get("content") or ""
        raise ExecutionError("the answer broke off", where=self._url, remedy="Ask again")

    def _open(self, path: str, body: dict[str, Any] | None) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        try:
            request = urllib.request.Request(self._url + path, data, headers)
            response: http.client.HTTPResponse = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            remedy = "Put one of its keys into HELIOS_API_KEY" if error.code == 401 else ""
            raise ExecutionError(_server_words(error), where=self._url, remedy=remedy) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            remedy = "Start a server with `helios serve`, or check the address"
            if isinstance(reason, ssl.SSLCertVerificationError):
                remedy = "Name the file of its authority in SSL_CERT_FILE, or check the address"
            raise HeliosError(
                f"can't be reached ({reason})", where=self._url, remedy=remedy
            ) from error
        return response


def _server_words(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered with status {error.code}"
