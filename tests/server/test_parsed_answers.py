"""Reasoning and calls in answers: JSON and streams say the same of every syntax, to OpenAI's SDK.

A scripted worker generates a test's own tokens, cut as the test likes; what is expected is what the
syntax's parser reads of the whole, without HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import OpenAI

from helios.frontend.response.deltas import Content
from helios.server.calls import chat_call
from helios.worker.messages import Finish
from tests.frontend.response.reading import QUOTE, Response, Syntax, put_together
from tests.frontend.response.syntaxes import EVERY, TOOLS
from tests.server.scripted import RunningServer, running_server
from tests.server.syntaxes import Core, Playing, chat, core, functions

TEXTS = ["a", " ", "\n\n", "caf\u00e9 ", "<", '"', "\\", "{", "1", "null", "\U0001f680"]
# How a byte-level vocabulary writes single bytes: parts of characters of two and of four.
BYTES = ["\u00c3", "\u00a9", "\u00f0", "\u0141"]


@dataclass
class Served:
    """A syntax's server and OpenAI's client of it."""

    core: Core
    playing: Playing
    server: RunningServer
    sdk: OpenAI


@pytest.fixture(scope="module", params=[by for by, _ in EVERY], ids=[by.name for by, _ in EVERY])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    yield from _served(request.param)


def _served(by: Syntax) -> Iterator[Served]:
    its = core(by)
    playing = Playing(eos=its.eos)
    with (
        running_server(playing.script, frontend=its.frontend) as server,
        OpenAI(base_url=server.url + "/v1", api_key="none", timeout=60, max_retries=0) as sdk,
    ):
        yield Served(its, playing, server, sdk)


@dataclass
class Heard:
    """A message put together from chunks, as a client does it; checks each chunk's form."""

    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, str]] = field(default_factory=list)
    finish: str | None = None
    role: str | None = None

    def hear(self, choice: Any) -> None:
        assert self.finish is None, "nothing comes after the finish chunk"
        delta = choice.delta
        if delta.role is not None:
            assert (self.role, delta.content) == (None, ""), "the role comes once, and first"
            self.role = delta.role
        assert self.role == "assistant"
        self.content += delta.content or ""
        self.reasoning += (delta.model_extra or {}).get("reasoning_content") or ""
        for part in delta.tool_calls or []:
            if part.index == len(self.calls):
                assert part.type == "function"
                assert part.id
                assert part.function.name
                self.calls.append({"id": part.id, "name": part.function.name, "arguments": ""})
            else:
                assert part.index == len(self.calls) - 1, "calls come one after the other"
                assert (part.id, part.type, part.function.name) == (None, None, None)
            assert isinstance(part.function.arguments, str)
            self.calls[part.index]["arguments"] += part.function.arguments
        self.finish = choice.finish_reason


def _heard(served: Served, body: dict[str, Any]) -> list[Heard]:
    heard = [Heard() for _ in range(body.get("n", 1))]
    for chunk in served.sdk.chat.completions.create(**body, stream=True):
        for choice in chunk.choices:
            heard[choice.index].hear(choice)
    return heard


def _expected(served: Served, body: dict[str, Any], tokens: Sequence[int]) -> Response:
    """What the syntax's parser makes of a whole response."""
    frontend = served.core.frontend
    (prepared, *_) = chat_call(json.dumps(body).encode()).prepare(frontend.preparer)
    everything = [*tokens, served.core.eos]
    delta = frontend.output(prepared).push(everything, [0.0] * len(everything), last=True)
    return put_together(delta.parts or [Content(delta.text)] * bool(delta.text))


@st.composite
def _responses(draw: st.DrawFn, its: Core, fragments: tuple[str, ...]) -> list[list[int]]:
    """A response's tokens, event by event."""
    spelled = [marker[:1] + QUOTE + marker[1:] for marker in its.syntax.tokens]
    parts = draw(st.lists(st.sampled_from([*fragments, *TEXTS, *spelled]), max_size=16))
    tokens = [token for part in parts for token in its.tokens(part)]
    for at, data in draw(
        st.lists(st.tuples(st.integers(0, len(tokens)), st.sampled_from(BYTES)), max_size=3)
    ):
        tokens[at:at] = [its.tokenizer.token_id(data) or 0]
    cuts = sorted(draw(st.lists(st.integers(0, len(tokens)), max_size=12)))
    events = [tokens[a:b] for a, b in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]
    return [event for event in events if event]


def _agree(heard: Heard, choice: Any, expected: Response) -> None:
    """A streamed choice, the same in JSON, and what was written."""
    message = choice.message
    reasoning = (message.model_extra or {}).get("reasoning_content")
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
    assert calls == [(call.name, call.arguments) for call in expected.calls]
    assert (message.content or "", reasoning or "") == (expected.content, expected.reasoning)
    assert reasoning != "", "where there is none it is left out"
    assert (message.content is None) == (not expected.content and bool(calls))
    assert [(call["name"], call["arguments"]) for call in heard.calls] == calls
    assert (heard.content, heard.reasoning) == (expected.content, expected.reasoning)
    assert heard.finish == choice.finish_reason
    for call in message.tool_calls or []:
        assert isinstance(json.loads(call.function.arguments), dict)
        assert call.id
    ids = [call["id"] for call in heard.calls]
    given = [call.call_id for call in expected.calls]
    assert all(own == its for own, its in zip(ids, given, strict=True) if its)


@pytest.mark.clause("FRONT-13", "FRONT-15")
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_json_and_streams_say_what_was_written(served: Served, data: st.DataObject) -> None:
    """H03, H06, K02, K05, K08, K11 of any syntax: each choice has one finish chunk, and arguments,
    types and characters are the same in both."""
    fragments = next(its for by, its in EVERY if by is served.core.syntax)
    choices = data.draw(st.lists(_responses(served.core, fragments), min_size=1, max_size=2))
    finish = data.draw(st.sampled_from([Finish.EOS, Finish.LIMIT, Finish.STOP]))
    if finish is not Finish.EOS:
        choices = [events or [served.core.tokens("a")] for events in choices]
    served.playing.play(choices, finish)
    tools = data.draw(st.sampled_from([None, TOOLS]))
    if not served.core.frontend.preparer.reading.knows_calls:
        tools = None
    thinks = data.draw(st.booleans())
    more: dict[str, Any] = {} if tools is None else {"tools": functions(tools)}
    body = chat(n=len(choices), **more)
    body["chat_template_kwargs"] = {"thinks": thinks}
    flat = [[token for event in events for token in event] for events in choices]
    expected = [_expected(served, body, tokens) for tokens in flat]
    extra = {"chat_template_kwargs": body.pop("chat_template_kwargs")}
    body["extra_body"] = extra
    answer = served.sdk.chat.completions.create(**body)
    heard = _heard(served, body)
    assert [choice.index for choice in answer.choices] == list(range(len(choices)))
    for index, choice in enumerate(answer.choices):
        _agree(heard[index], choice, expected[index])
        called = any(call.complete for call in expected[index].calls)
        reasons = {Finish.EOS: "tool_calls" if called else "stop", Finish.LIMIT: "length"}
        assert choice.finish_reason == reasons.get(finish, "stop")
