"""A grammar that can't be followed: the client's error, in answers, streams and the log."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator

import pytest

from helios.frontend.grammar.faults import GrammarFault
from helios.worker.messages import FailedEvent, Submit, TokensEvent
from helios.worker.recipient import RequestEvent
from tests.server.desk import CORE, PATH
from tests.server.scripted import Script, running_server
from tests.server.syntaxes import chat

BODY = chat(guided_regex="[a-z]+")


def ends_with(fault: GrammarFault) -> Script:
    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        yield TokensEvent(submit.request_id, [70], [-0.5], 0)
        yield FailedEvent(submit.request_id, "after 1 tokens it is over", fault)

    return script


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "status", "kind", "param", "code"),
    [
        (
            GrammarFault.LIMIT,
            400,
            "invalid_request_error",
            "guided_regex",
            "grammar_limit_exceeded",
        ),
        (GrammarFault.DEAD_END, 400, "invalid_request_error", "guided_regex", "grammar_dead_end"),
        (
            GrammarFault.EXCLUDED,
            400,
            "invalid_request_error",
            "allowed_token_ids",
            "grammar_dead_end",
        ),
        (GrammarFault.NONE, 500, "server_error", None, "execution_failed"),
    ],
)
def test_whose_fault_it_is(
    caplog: pytest.LogCaptureFixture,
    fault: GrammarFault,
    status: int,
    kind: str,
    param: str | None,
    code: str,
    stream: bool,
) -> None:
    caplog.set_level(logging.INFO, logger="helios")
    with running_server(ends_with(fault), frontend=CORE.frontend) as server:
        answer = server.http.post(PATH, json=BODY | {"stream": stream})
    assert answer.status_code == (200 if stream else status)
    *_, last = answer.text.strip().split("\n\n")
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["type"], error["param"], error["code"]) == (kind, param, code)
    assert "after 1 tokens it is over" in error["message"]
    assert code in str([vars(record) for record in caplog.records])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
