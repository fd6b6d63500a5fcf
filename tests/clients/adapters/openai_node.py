"""OpenAI's Node SDK: `node/session.mjs` does one task a process and says what came of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.adapters.openai_python import KINDS
from tests.clients.sessions import DEADLINE_S, NO_KEY, Answer, Ask, At, Refusal
from tests.clients.tool_sessions import CALLING, FORM, OPTIONS, QUESTION, RESULT, Session

FOLDER: Final = Path(__file__).parent.parent / "node"


class OpenAINode:
    """Skips the calling test where Node or the SDK isn't installed."""

    lacks: Mapping[str, str] = {}
    kinds: Mapping[int, str] = KINDS
    too_long = "BadRequestError"

    def __init__(self) -> None:
        if shutil.which("node") is None:
            pytest.skip("OpenAI's Node SDK is not tested: there is no node here")
        if not (FOLDER / "node_modules" / "openai").exists():
            pytest.skip("OpenAI's Node SDK is not tested: `npm ci` in tests/clients/node first")

    def models(self, at: At) -> list[str]:
        return list(_run(at, "models"))

    def chat(self, at: At, ask: Ask) -> Answer:
        return _answer(_run(at, "chat", ask))

    def stream(self, at: At, ask: Ask) -> Answer:
        return _answer(_run(at, "stream", ask))

    def abandon(self, at: At, ask: Ask, pieces: int) -> None:
        assert _run(at, "abandon", ask, pieces=pieces) == pieces

    def together(self, at: At, asks: Sequence[Ask]) -> list[Answer]:
        return [_answer(answer) for answer in _run(at, "together", *asks)]

    def refusal(self, at: At, ask: Ask) -> Refusal:
        return Refusal(**_run(at, "refusal", ask))

    def tool_session(self, at: At) -> Session:
        call, answer = _order(at, "tools", [_tool_body()], result=RESULT)
        arguments = json.loads(call["function"]["arguments"])
        return Session(call["function"]["name"], arguments, answer["content"])

    def streamed_call(self, at: At) -> tuple[str, dict[str, Any]]:
        completion = _order(at, "stream", [_tool_body()])
        (call,) = completion["choices"][0]["message"]["tool_calls"]
        return call["function"]["name"], json.loads(call["function"]["arguments"])

    def structured(self, at: At) -> list[dict[str, Any]]:
        form = {"name": "balls", "schema": FORM, "strict": True}
        asked = [{"role": "user", "content": "Which balls are there?"}]
        wanted = {"type": "json_schema", "json_schema": form}
        return [_order(at, "parsed", [{**OPTIONS, "messages": asked, "response_format": wanted}])]


def _tool_body() -> dict[str, Any]:
    return {**OPTIONS, **CALLING, "messages": [{"role": "user", "content": QUESTION}]}


def _run(at: At, task: str, *asks: Ask, **more: Any) -> Any:
    return _order(at, task, [ask.body() for ask in asks], **more)


def _order(at: At, task: str, bodies: Sequence[Mapping[str, Any]], **more: Any) -> Any:
    order = {
        "task": task,
        "url": at.api,
        "key": NO_KEY if at.key is None else at.key,
        "bodies": bodies,
        **more,
    }
    ended = subprocess.run(
        ["node", "--import", "./offline.mjs", "session.mjs"],
        cwd=FOLDER,
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def _answer(completion: Mapping[str, Any]) -> Answer:
    choices, usage = completion["choices"], completion["usage"]
    entries = (choices[0].get("logprobs") or {}).get("content", [])
    return Answer(
        tuple(choice["message"]["content"] for choice in choices),
        usage["prompt_tokens"],
        usage["completion_tokens"],
        tuple(choice["finish_reason"] for choice in choices),
        tuple(entry["logprob"] for entry in entries),
        tuple(tuple(top["logprob"] for top in entry["top_logprobs"]) for entry in entries),
    )
