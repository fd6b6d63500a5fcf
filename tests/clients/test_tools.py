"""Tools and answers of a form, through the libraries that have them."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from tests.clients.conftest import ADAPTERS
from tests.clients.sessions import At
from tests.clients.tool_sessions import FORM, PlainHttp, Session, ToolClient
from tests.server.real import ServerProcess


@pytest.fixture(scope="module", params=["OpenAIPython", "OpenAINode", "LangChain"])
def client(request: pytest.FixtureRequest) -> ToolClient:
    module, library = ADAPTERS[request.param]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{request.param} is not tested: {library} isn't installed (`make clients`)")
    adapter = importlib.import_module(f"tests.clients.adapters.{module}")
    made: ToolClient = getattr(adapter, request.param)()
    return made


@pytest.fixture(scope="module")
def at(open_server: ServerProcess) -> At:
    return At(open_server.url)


@pytest.fixture(scope="module")
def expected(at: At) -> Session:
    return PlainHttp(at).tool_session()


def test_a_call_its_result_and_an_answer(client: ToolClient, at: At, expected: Session) -> None:
    assert expected.name == "multiply"
    assert expected.arguments.keys() == {"a", "b"}
    assert expected.answer
    assert client.tool_session(at) == expected


def test_a_streamed_call(client: ToolClient, at: At, expected: Session) -> None:
    assert client.streamed_call(at) == (expected.name, expected.arguments)


def test_answers_of_a_form(client: ToolClient, at: At) -> None:
    answers = client.structured(at)
    assert answers
    for answer in answers:
        assert answer.keys() == FORM["properties"].keys()
        assert answer["colour"] in FORM["properties"]["colour"]["enum"]
        assert type(answer["count"]) is int


def test_the_agent_loop(at: At) -> None:
    """examples/agent_loop.py, as it is shipped."""
    from openai import OpenAI

    from tests.server.test_agent_loop import LOOP

    told: list[str] = []
    with OpenAI(base_url=at.api, api_key="none") as sdk:
        answer = LOOP.answer(sdk, "smollm2-135m-instruct", "What is 12 times 34?", told.append)
    assert told[0].startswith("multiply(")
    assert answer
