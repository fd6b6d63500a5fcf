"""Every client at a server that asks for a key, and has room for two requests alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest

from tests.clients.conftest import KEY
from tests.clients.sessions import Ask, At, Client, Http
from tests.server.real import DEADLINE_S, ServerProcess

ROOM = 2  # one slot, one place in the queue


@pytest.fixture(scope="module")
def at(keyed_server: ServerProcess) -> At:
    return At(keyed_server.url, KEY)


@contextlib.contextmanager
def _no_room_left(at: At) -> Iterator[None]:
    """Streams that have begun, or wait, take all admission permits until the block ends."""
    body = Ask(max_tokens=4000).body() | {"ignore_eos": True, "stream": True}
    with contextlib.ExitStack() as opened:
        http = opened.enter_context(httpx.Client(base_url=at.url, timeout=DEADLINE_S))
        http.headers["authorization"] = f"Bearer {at.key}"
        for _ in range(ROOM):
            response = opened.enter_context(http.stream("POST", "/v1/chat/completions", json=body))
            assert response.status_code == 200
        yield


def test_a_client_with_the_key_is_answered(client: Client, at: At) -> None:
    http = Http(at)
    if "models" not in client.lacks:
        assert client.models(at) == http.models()
    assert client.chat(at, Ask()) == http.chat(Ask())


@pytest.mark.parametrize("key", [None, "sk-another"])
def test_a_client_without_it_is_refused(client: Client, at: At, key: str | None) -> None:
    refusal = client.refusal(At(at.url, key), Ask())
    assert (refusal.kind, refusal.status) == (client.kinds[401], 401)
    assert "code" in client.lacks or refusal.code == "invalid_api_key"


def test_a_client_that_there_is_no_room_for_is_refused(
    client: Client, at: At, keyed_server: ServerProcess
) -> None:
    with _no_room_left(at):
        refusal = client.refusal(at, Ask())
    assert (refusal.kind, refusal.status) == (client.kinds[429], 429)
    assert "code" in client.lacks or refusal.code == "queue_full"
    keyed_server.metrics_until(lambda now: now["flare_http_permits"] == 0)
    assert client.chat(at, Ask()).texts
