"""examples/agent_loop.py: it calls, tells results, and ends with an answer or a reason."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from openai import OpenAI

from helios.worker.messages import Finish, Submit, TokensEvent
from tests.frontend.response.test_json_calls import HERMES
from tests.server.scripted import Script, running_server
from tests.server.syntaxes import Core, core

CORE = core(HERMES)


def _loop() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "agent_loop.py"
    spec = importlib.util.spec_from_file_location("agent_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOOP = _loop()


def _script(its: Core, answers: Sequence[str]) -> Script:
    """One answer a request, in turn; the last one again and again."""
    left = list(answers)

    async def script(submit: Submit) -> AsyncGenerator[TokensEvent, None]:
        text = left.pop(0) if len(left) > 1 else left[0]
        tokens = [*its.tokens(text), its.eos]
        yield TokensEvent(submit.request_id, tokens, [0.0] * len(tokens), Finish.EOS)

    return script


def _call(name: str, **arguments: object) -> str:
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def _asked(*answers: str) -> tuple[str, list[str], list[str]]:
    """The answer, what was told meanwhile, and the prompts as text."""
    told: list[str] = []
    with (
        running_server(_script(CORE, answers), frontend=CORE.frontend) as server,
        OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client,
    ):
        answer = LOOP.answer(client, "sample", "What is 6 times 7?", told.append)
        prompts = [
            b"".join(map(CORE.tokenizer.token_bytes, submit.prompt_tokens)).decode()
            for submit in server.client.submitted
        ]
    return answer, told, prompts


def test_a_call_its_result_and_the_answer() -> None:
    call = _call("multiply", a=6, b=7)
    answer, told, prompts = _asked(call, "It is 42.")
    assert answer == "It is 42."
    assert told == ['multiply({"a":6,"b":7}) = 42']
    assert 'multiply{"a": 6, "b": 7}' in prompts[1]
    assert "[tool]42" in prompts[1]


def test_what_goes_wrong_is_told_to_the_model() -> None:
    answer, told, prompts = _asked(_call("divide"), _call("multiply", a=1), "I can't.")
    assert answer == "I can't."
    assert [line.partition(" = ")[2].partition(":")[0] for line in told] == ["error", "error"]
    assert "[tool]error: there is no tool divide" in prompts[1]


def test_a_model_that_only_calls_comes_to_an_end() -> None:
    with pytest.raises(RuntimeError, match="no answer after 5 rounds"):
        _asked(_call("multiply", a=1, b=1))


def test_the_tools_are_what_they_say() -> None:
    assert LOOP.run_tool("count_letters", '{"word": "Strawberry", "letter": "R"}') == "3"
    assert {tool["function"]["name"] for tool in LOOP.TOOLS} == LOOP.FUNCTIONS.keys()
