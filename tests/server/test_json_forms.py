"""Bodies at the edges of JSON: what counts, what is refused, each time with a typed error."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("path", [PATH, "/v1/render"])
@pytest.mark.parametrize("digits", [20, 400, 4300, 4301, 100_000])
@pytest.mark.parametrize(
    "field",
    ["max_tokens", "max_completion_tokens", "n", "seed", "top_k", "priority", "min_tokens",
     "logprobs", "prompt_logprobs", "metadata"],
)  # fmt: skip
def test_integers_beyond_64_bits_are_refused_by_name(
    server: RunningServer, path: str, digits: int, field: str
) -> None:
    for sign in ("", "-"):
        value = sign + "9" * digits
        refused = server.http.post(path, content=BEGINNING + f',"{field}":{value}}}'.encode())
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, field)
        assert error["message"].startswith(f"{field}: the number is beyond 64 bits. ")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ('"stop_token_ids":[1,BIG]', "stop_token_ids[1]"),
        ('"stop_token_sequences":[[1],[BIG]]', "stop_token_sequences[1][0]"),
        ('"bad_words":["a",[BIG]]', "bad_words[1][0]"),
        ('"logit_bias":{"5":BIG}', "logit_bias.5"),
        ('"prompt":[1,2,BIG]', "prompt[2]"),
    ],
)
def test_integers_beyond_64_bits_are_found_within_fields(
    server: RunningServer, more: str, field: str
) -> None:
    for big in ("18446744073709551616", "9" * 5000):
        refused = _post(server, BEGINNING + f",{more.replace('BIG', big)}}}".encode())
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("value", ["9" * 20, "9" * 5000, "-" + "9" * 5000, "[1e999,-1e999]"])
def test_in_fields_without_meaning_any_number_is(server: RunningServer, value: str) -> None:
    answer = _post(server, BEGINNING + f',"zz":{value}}}'.encode())
    assert (answer.status_code, answer.headers["x-helios-ignored"]) == (200, "zz")
    message = f'{{"role":"user","content":"hello","mood":{value}}}'
    chat = f'{{"model":"sample","messages":[{message}]}}'.encode()
    answer = server.http.post("/v1/chat/completions", content=chat)
    assert (answer.status_code, answer.headers["x-helios-ignored"]) == (200, "messages[].mood")


def test_64_bits_are_enough_for_every_seed(server: RunningServer) -> None:
    for seed in (-(1 << 63), (1 << 64) - 1):
        assert _post(server, BEGINNING + f',"seed":{seed}}}'.encode()).status_code == 200


@pytest.mark.parametrize(
    ("text", "lone"),
    [
        (b"\\ud800", b"\\ud800"),
        (b"ab\\uDC00c", b"\\uDC00"),
        (b"\\ud83d\\ude00\\ud83d!", b"\\ud83d"),
        (b"\\\\ud800\\\\\\udbff\\ud800", b"\\udbff"),
    ],
)
def test_a_lone_surrogate_is_said_to_be_one(
    server: RunningServer, text: bytes, lone: bytes
) -> None:
    body = BEGINNING + b',"user":"' + text + b'"}'
    error = _post(server, body).json()["error"]
    assert error["code"] == "invalid_json"
    place = re.escape(lone.decode()) + r" at byte (\d+) is a lone surrogate"
    found = re.search(place, error["message"])
    assert found is not None, error["message"]
    assert body[int(found[1]) :].startswith(lone)


def test_other_faults_are_not_taken_for_surrogates(server: RunningServer) -> None:
    for text in (rb"\\ud800", rb"\ud83d\ude00"):
        error = _post(server, BEGINNING + b',"user":"' + text + b'",}').json()["error"]
        assert (error["code"], "surrogate" in error["message"]) == ("invalid_json", False)


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
