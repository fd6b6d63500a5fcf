"""Stops in answers with reasoning and calls.

The scripted worker ends a request where its own matcher says so, as the real worker's does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from helios.scheduler.events import TokensEmitted
from helios.worker.host_stops import HostStops
from helios.worker.messages import Finish, Submit, TokensEvent
from tests.server.desk import CORE, THINKS, TOOLS, Desk, call
from tests.server.scripted import Script, running_server
from tests.server.syntaxes import Core, Playing


def _stopping(its: Core, text: str, at_once: int) -> Script:
    """As the real worker: a stop ends the request after the token that completes it."""
    tokens = its.tokens(text)

    async def script(submit: Submit) -> AsyncGenerator[TokensEvent, None]:
        stops = HostStops(lambda: its.tokenizer)
        stops.begin(submit)
        steps = [tokens[begin : begin + at_once] for begin in range(0, len(tokens), at_once)]
        for step in (*steps, [its.eos]):
            last = step == [its.eos]
            event = TokensEmitted(
                submit.request_id, step, [-0.5] * len(step), Finish.EOS if last else None
            )
            finish = Finish.STOP if stops.ends(event) else Finish.EOS if last else 0
            yield TokensEvent(submit.request_id, step, [-0.5] * len(step), finish)
            if finish:
                return

    return script


@pytest.mark.clause("STOP-2")
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        # What might have become a stop splits no marker.
        pytest.param("a</think>b", "STOPWORD", ("a", "b", [], "stop"), id="F02"),
        ("first STOP second</think>\n\nyes", "STOP", ("first ", "", [], "stop")),
        # Markers count as they are spelled.
        ("a</think>\n\nb", "</think>", ("a", "", [], "stop")),
        ("a</think>\n\nb", "hink>\n", ("a</t", "", [], "stop")),
        ("a</think>\n\nyes STOP no", "STOP", ("a", "yes ", [], "stop")),
        (
            f"a</think>\n\n{call('say', text='one STOP two')}",
            "STOP",
            ("a", "", [{"text": "one "}], "stop"),
        ),
        (
            f"a</think>\n\n{call('add', a=1)}\n{call('add', a=22)}",
            "22",
            ("a", "", [{"a": 1}, {}], "stop"),
        ),
        (f"a</think>\n\n{call('add', a=1)}\nSTOP", "STOP", ("a", "", [{"a": 1}], "stop")),
        (f"a</think>\n\n{call('add', a=1)}", "STOP", ("a", "", [{"a": 1}], "tool_calls")),
        pytest.param("r</think>\n\nok\n<|fin|>", "<|fin|>", ("r", "ok\n", [], "stop"), id="J03"),
        pytest.param(
            "r</think>\n\ngold, iron, zinc", "iron", ("r", "gold, ", [], "stop"), id="J06"
        ),
    ],
)
def test_stops_in_parsed_answers(
    text: str, stop: str, expected: tuple[str, str, list[Any], str], at_once: int
) -> None:
    with running_server(_stopping(CORE, text, at_once), frontend=CORE.frontend) as server:
        stopping = Desk(CORE, Playing(), server)
        more = {"tools": TOOLS, "stop": [stop], **THINKS}
        choice = stopping.ask(**more)
        message = choice["message"]
        calls = [
            json.loads(made["function"]["arguments"]) for made in message.get("tool_calls", [])
        ]
        said = message.get("reasoning_content", ""), message["content"] or "", calls
        assert (*said, choice["finish_reason"]) == expected
        assert stopping.submitted.eos_ids == [CORE.eos], "J09: the model's own end still ends it"
        chunks = stopping.chunks(**more)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    for kind, whole in (("reasoning_content", expected[0]), ("content", expected[1])):
        assert "".join(delta.get(kind) or "" for delta in deltas) == whole
    streamed: dict[int, str] = {}
    for part in (part for delta in deltas for part in delta.get("tool_calls", [])):
        streamed[part["index"]] = streamed.get(part["index"], "") + part["function"]["arguments"]
    assert [json.loads(text) for text in streamed.values()] == expected[2]
    assert chunks[-1]["choices"][0]["finish_reason"] == expected[3]
