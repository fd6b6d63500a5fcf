"""Every client's session: the same questions through each library, with the same answers as plain
HTTP's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.clients.sessions import Ask, At, Client, Http
from tests.server.real import ServerProcess

LONG = Ask("Write every number from one to two thousand as words.", max_tokens=4000)


@pytest.fixture(scope="module")
def at(open_server: ServerProcess) -> At:
    return At(open_server.url)


@pytest.fixture(scope="module")
def http(at: At) -> Http:
    return Http(at)


def _able(client: Client, what: str) -> None:
    if what in client.lacks:
        pytest.skip(client.lacks[what])


def test_models(client: Client, at: At, http: Http) -> None:
    _able(client, "models")
    assert client.models(at) == http.models()


def test_a_whole_answer_with_its_usage(client: Client, at: At, http: Http) -> None:
    assert client.chat(at, Ask()) == http.chat(Ask())


def test_a_streamed_answer_with_its_usage(client: Client, at: At, http: Http) -> None:
    expected, streamed = http.chat(Ask()), client.stream(at, Ask())
    assert streamed == replace(expected, finish=streamed.finish)
    assert streamed.finish == expected.finish or "streamed finish" in client.lacks


def test_several_choices(client: Client, at: At, http: Http) -> None:
    _able(client, "choices")
    ask = Ask(n=3, seed=7, temperature=1.0)
    expected = http.chat(ask)
    assert len(set(expected.texts)) == 3
    assert client.chat(at, ask) == expected


def test_logprobs(client: Client, at: At, http: Http) -> None:
    _able(client, "logprobs")
    ask = Ask(max_tokens=6, top_logprobs=3)
    expected = http.chat(ask)
    assert [len(tops) for tops in expected.top_logprobs] == [3] * len(expected.logprobs) != []
    assert client.chat(at, ask) == expected


def test_stops(client: Client, at: At, http: Http) -> None:
    whole = http.chat(Ask()).texts[0]
    stop = whole.split()[2]
    expected = http.chat(Ask(stop=stop))
    assert expected.texts[0] == whole[: whole.index(stop)] != ""
    assert expected.finish == ("stop",)
    assert client.chat(at, Ask(stop=stop)) == expected
    assert client.stream(at, Ask(stop=stop)).texts == expected.texts


@pytest.mark.parametrize(("status", "ask"), [(400, Ask(stop="x" * 5000)), (404, Ask(model="gpt"))])
def test_refusals(client: Client, at: At, http: Http, status: int, ask: Ask) -> None:
    known, code, param = http.refusal(ask)
    refusal = client.refusal(at, ask)
    assert (refusal.kind, refusal.status) == (client.kinds[status], status) == (refusal.kind, known)
    assert "code" in client.lacks or (refusal.code, refusal.param) == (code, param)


def test_a_prompt_that_is_too_long(client: Client, at: At, http: Http) -> None:
    """Some clients know this refusal from others, and shorten the conversation."""
    ask = Ask("word " * 9000)
    assert http.refusal(ask) == (400, "context_length_exceeded", "messages")
    refusal = client.refusal(at, ask)
    assert (refusal.kind, refusal.status) == (client.too_long, 400)


def test_going_away_in_mid_stream_ends_the_request(
    client: Client, at: At, open_server: ServerProcess
) -> None:
    cancelled = 'flare_requests_finished_total{reason="cancelled"}'
    before = open_server.metrics().get(cancelled, 0)
    client.abandon(at, LONG, 3)
    after = open_server.metrics_until(
        lambda now: now["flare_requests_running"] == now["flare_http_permits"] == 0
    )
    assert after[cancelled] == before + 1


def test_requests_at_once(client: Client, at: At, http: Http) -> None:
    asks = [Ask(f"Say {n}.", max_tokens=4 + n, temperature=1.0, seed=n) for n in range(3)]
    assert client.together(at, asks) == [http.chat(ask) for ask in asks]
