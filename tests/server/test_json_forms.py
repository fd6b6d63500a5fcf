"""Bodies at the edges of JSON: what counts, what is refused, each time with a typed error."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from helios.server.options import HttpOptions
from tests.server.scripted import RunningServer, running_server, says

PATH = "/v1/completions"
BEGINNING = b'{"model":"sample","prompt":"hello"'


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(says("hello")) as running:
        yield running


def _post(server: RunningServer, body: bytes) -> httpx.Response:
    return server.http.post(PATH, content=body)


def test_of_a_field_that_comes_twice_the_last_counts(server: RunningServer) -> None:
    assert _post(server, b'{"model":"nope",' + BEGINNING[1:] + b"}").status_code == 200
    refused = _post(server, BEGINNING + b',"model":"nope"}')
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "model")


@pytest.mark.parametrize(
    "value",
    [b"NaN", b"Infinity", b"-Infinity", b"0x10", b"01", b"1.", b".5", b"+1", b'"\\ud800"',
     b'"\xed\xa0\x80"', b'"\x00"', b"'a'", b"[1,]", b"// c\n1", b"[" * 100_000, b'{"a":' * 100_000],
)  # fmt: skip
def test_what_is_no_json_is_refused(server: RunningServer, value: bytes) -> None:
    refused = _post(server, BEGINNING + b',"temperature":' + value + b"}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("value", [b"1e999", b"-1e400", b"9" * 400])
def test_numbers_that_nothing_holds_are_refused_by_name(
    server: RunningServer, value: bytes
) -> None:
    refused = _post(server, BEGINNING + b',"temperature":' + value + b"}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "temperature")


def test_unknown_fields_are_refused_where_that_is_asked_for() -> None:
    with running_server(says("hello"), options=HttpOptions(strict_fields=True)) as server:
        assert _post(server, BEGINNING + b',"user":"me"}').status_code == 200
        refused = _post(server, BEGINNING + b',"zeta":1,"alpha":2}')
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (
            400, "unknown_field", "alpha",
        )  # fmt: skip
        chat = {"model": "sample", "messages": [{"role": "user", "content": "x", "mood": 1}]}
        refused = server.http.post("/v1/chat/completions", json=chat)
        assert refused.json()["error"]["param"] == "messages[].mood"
        assert server.client.submitted[1:] == []
