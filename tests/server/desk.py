"""A server whose model says what a test writes, in a syntax of its choice.

`Desk` asks over HTTP and shows what comes back; answers are Qwen's unless a test takes another
syntax.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from helios.worker.messages import Finish, Submit
from tests.frontend.response.test_function_tags import QWEN
from tests.server.scripted import RunningServer, running_server
from tests.server.syntaxes import Core, Playing, chat, core, functions

CORE: Final = core(QWEN)
PATH: Final = "/v1/chat/completions"
TOOLS: Final = functions({"add": {"a": {"type": "integer"}}, "say": {"text": {"type": "string"}}})
# The prompt opens reasoning.
THINKS: Final[dict[str, Any]] = {"chat_template_kwargs": {"thinks": True}}


def call(name: str, **arguments: object) -> str:
    """A call as Qwen writes it."""
    values = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


class Desk:
    """A server of one syntax, and what its model says next."""

    def __init__(self, its: Core, playing: Playing, server: RunningServer) -> None:
        self.core, self.playing, self.server = its, playing, server

    def says(self, *texts: str, finish: Finish = Finish.EOS, at_once: int = 1) -> None:
        """The answers of the next request's choices, so many tokens an event."""
        choices = []
        for text in texts:
            tokens = self.core.tokens(text)
            choices.append([tokens[i : i + at_once] for i in range(0, len(tokens), at_once)])
        self.playing.play(choices, finish)

    def ask(self, **more: Any) -> Any:
        """The first choice of a whole answer."""
        response = self.server.http.post(PATH, json=chat(**more))
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]

    def chunks(self, **more: Any) -> list[Any]:
        """A stream's chunks."""
        response = self.server.http.post(PATH, json=chat(stream=True, **more))
        assert response.status_code == 200, response.text
        *frames, done, rest = response.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(frame.removeprefix("data: ")) for frame in frames]

    def deltas(self, **more: Any) -> list[Any]:
        """The deltas of a stream with one choice."""
        return [chunk["choices"][0]["delta"] for chunk in self.chunks(**more)]

    @property
    def submitted(self) -> Submit:
        return self.server.client.submitted[-1]

    @property
    def prompt(self) -> str:
        """The last request's prompt as text."""
        tokens = self.submitted.prompt_tokens
        return b"".join(map(self.core.tokenizer.token_bytes, tokens)).decode()


def desk_of(its: Core) -> Iterator[Desk]:
    playing = Playing(eos=its.eos)
    with running_server(playing.script, frontend=its.frontend) as server:
        yield Desk(its, playing, server)
