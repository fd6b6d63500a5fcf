"""API keys and browsers' origins: who is let in, what others are told, what nobody is shown."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from helios.errors import HeliosError
from helios.server.options import AccessOptions, HttpOptions
from helios.server.options.access import KEY_VARIABLE, key_digest, read_keys
from tests.server.scripted import RunningServer, running_server, says

KEY, OTHER_KEY = "sk-first~key", "second+key=="
PATH = "/v1/completions"
BODY: dict[str, Any] = {"model": "sample", "prompt": "hello"}
PAGE = "https://page.example:8443"
GUARDED = HttpOptions(
    access=AccessOptions(key_digests=tuple(key_digest(k.encode()) for k in (KEY, OTHER_KEY)))
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(says("hello"), options=GUARDED) as running:
        yield running


def _ask(server: RunningServer, *authorization: str | bytes) -> httpx.Response:
    """As a client that checks nothing of what it sends."""
    url = httpx.URL(server.url)
    connection = http.client.HTTPConnection(url.host, url.port)
    body = json.dumps(BODY).encode()
    connection.putrequest("POST", PATH)
    connection.putheader("content-length", str(len(body)))
    for value in authorization:
        connection.putheader("authorization", value)
    connection.endheaders(body)
    answer = connection.getresponse()
    received = httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())
    connection.close()
    return received


@pytest.mark.parametrize(
    "authorization", [f"Bearer {KEY}", f"bearer {OTHER_KEY}", f"BEARER   {KEY}", f"Bearer {KEY} "]
)
def test_a_key_lets_in(server: RunningServer, authorization: str) -> None:
    assert _ask(server, authorization).status_code == 200


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer",
        "Bearer ",
        "Bearer none",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY.upper()}",
        f"Bearer {KEY} {OTHER_KEY}",
        f"Bearer\t{KEY}",
        f"Basic {KEY}",
        f"{KEY}",
        f"Bearer{KEY}",
    ],
)
def test_anything_else_is_refused_without_being_repeated(
    server: RunningServer, authorization: str
) -> None:
    refused = _ask(server, authorization)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="helios", error="invalid_token"'
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert "sk-first" not in refused.text


def test_keys_that_are_no_text_are_refused(server: RunningServer) -> None:
    for key in (b"caf\xc3\xa9", b"\xff\xfe", KEY.encode() + b"\xa0"):
        assert _ask(server, b"Bearer " + key).status_code == 401


def test_no_key_and_two_are_refused(server: RunningServer) -> None:
    refused = _ask(server)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert refused.headers["www-authenticate"] == 'Bearer realm="helios"'
    assert refused.headers["x-request-id"]
    assert _ask(server, f"Bearer {KEY}", f"Bearer {KEY}").status_code == 401


def test_probes_need_no_key_and_all_else_does(server: RunningServer) -> None:
    for path in ("/health", "/ready", "/version"):
        assert server.http.get(path).status_code == 200
    for path in (
        "/metrics", "/openapi.json", "/v1/models", "/nowhere", "/health/", "//health",
        "/health/../v1/models", "/HEALTH", "/", "/server_info",
    ):  # fmt: skip
        assert server.http.get(path).status_code == 401, path
    for path in ("/reset_prefix_cache", "/tokenize", "/abort"):
        assert server.http.post(path).status_code == 401, path


def test_a_refused_body_is_not_read(server: RunningServer) -> None:
    refused = server.http.post(PATH, content=b"x" * 300_000)
    assert refused.status_code == 401
    assert server.http.get("/health").status_code == 200


def test_metrics_can_be_open() -> None:
    options = HttpOptions(access=AccessOptions((key_digest(b"k"),), open_metrics=True))
    with running_server(says("hello"), options=options) as server:
        assert server.http.get("/metrics").status_code == 200
        assert server.http.get("/v1/models").status_code == 401


def test_openais_client_sees_an_authentication_error(server: RunningServer) -> None:
    url = f"{server.url}/v1"
    with pytest.raises(openai.AuthenticationError) as refused:
        openai.OpenAI(base_url=url, api_key="wrong").models.list()
    assert refused.value.code == "invalid_api_key"
    listed = openai.OpenAI(base_url=url, api_key=OTHER_KEY).models.list()
    assert listed.data[0].id == "sample"


def test_options_show_no_key() -> None:
    digest = key_digest(KEY.encode())
    for shown in (repr(GUARDED), str(GUARDED.access)):
        assert KEY not in shown
        assert repr(digest) not in shown
        assert digest.hex() not in shown


# ---------------------------------------------------------------- where keys come from


def test_keys_come_from_options_files_and_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xef\xbb\xbf# team a\r\n  first  \r\n\r\nsecond\n#third\n first")
    environment = {KEY_VARIABLE: "fourth", "PATH": "/bin"}
    found = read_keys(["zeroth"], [path], environment)
    expected = ("zeroth", "first", "second", "fourth")
    assert found == tuple(key_digest(key.encode()) for key in expected)
    assert environment == {"PATH": "/bin"}
    assert read_keys([], [], {}) == ()


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"", "keys (--api-key-file)"),
        (b"\n# only comments\n", "keys (--api-key-file)"),
        (b"good\nse cret\n", "line 2"),
        (b"se\tcret\n", "line 1"),
        ("s\u00e9cret".encode(), "line 1"),
        (b"s\x00ecret", "line 1"),
        (b"\xff\xfes\x00e\x00", "line 1"),
        (b"s" * 1025, "line 1"),
        (b"#" * (1 << 20) + b"##", "keys (--api-key-file)"),
    ],
)
def test_files_without_usable_keys_are_named_and_not_quoted(
    tmp_path: Path, content: bytes, where: str
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(HeliosError) as refused:
        read_keys([], [path], {})
    assert where in refused.value.where
    assert refused.value.remedy
    assert "cret" not in str(refused.value)
    assert "ssss" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeliosError, match=r"absent \(--api-key-file\): can't be read"):
        read_keys([], [tmp_path / "absent"], {})


@pytest.mark.parametrize("key", ["", " ", "two words", "caf\u00e9"])
def test_an_empty_or_odd_key_opens_nothing(key: str) -> None:
    with pytest.raises(HeliosError) as refused:
        read_keys([key], [], {})
    assert refused.value.where == "--api-key"
    with pytest.raises(HeliosError) as refused:
        read_keys([], [], {KEY_VARIABLE: key})
    assert refused.value.where == KEY_VARIABLE


# ---------------------------------------------------------------- origins

WITH_ORIGIN = HttpOptions(
    access=AccessOptions(key_digests=(key_digest(KEY.encode()),), origins=(PAGE,))
)


@pytest.fixture(scope="module")
def cross_origin() -> Iterator[RunningServer]:
    with running_server(says("hello"), options=WITH_ORIGIN) as running:
        yield running


def _from_page(origin: str = PAGE, **more: str) -> dict[str, str]:
    return {"origin": origin, "authorization": f"Bearer {KEY}", **more}


def _preflight(server: RunningServer, origin: str, method: str = "POST") -> httpx.Response:
    asked = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization,content-type,x-stainless-lang",
    }
    return server.http.options(PATH, headers=asked)


def test_a_browsers_question_is_answered_without_a_key(cross_origin: RunningServer) -> None:
    answer = _preflight(cross_origin, PAGE)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "POST" in answer.headers["access-control-allow-methods"]
    for name in ("authorization", "content-type", "x-stainless-lang"):
        assert name in answer.headers["access-control-allow-headers"]


def test_another_origin_is_told_no(cross_origin: RunningServer) -> None:
    refused = _preflight(cross_origin, "https://page.example")
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers
    answer = cross_origin.http.get("/v1/models", headers=_from_page("https://evil.example"))
    assert "access-control-allow-origin" not in answer.headers
    assert _preflight(cross_origin, PAGE, "DELETE").status_code == 400


def test_pages_can_read_answers_errors_and_streams(cross_origin: RunningServer) -> None:
    http = cross_origin.http
    unknown = {**BODY, "unknown": 1}
    answers = {
        200: http.post(PATH, json=unknown, headers=_from_page()),
        400: http.post(PATH, content=b"{", headers=_from_page()),
        401: http.post(PATH, json=BODY, headers={"origin": PAGE}),
        404: http.get("/nowhere", headers=_from_page()),
        405: http.get(PATH, headers=_from_page()),
        413: http.post(PATH, content=b"x" * (17 << 20), headers=_from_page()),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "Origin" in answer.headers["vary"]
        exposed = answer.headers["access-control-expose-headers"]
        assert all(name in exposed for name in ("x-request-id", "x-helios-ignored", "retry-after"))
    assert answers[200].headers["x-helios-ignored"] == "unknown"
    streamed = http.post(PATH, json={**BODY, "stream": True}, headers=_from_page())
    assert streamed.headers["access-control-allow-origin"] == PAGE
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_pages_can_read_internal_errors(
    cross_origin: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a bug with a secret in it")

    monkeypatch.setattr("helios.server.generation.check_model", broken)
    answer = cross_origin.http.post(PATH, json=BODY, headers=_from_page())
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["x-request-id"]
    assert "secret" not in answer.text


def test_any_origin_and_none() -> None:
    anyone = HttpOptions(access=AccessOptions(origins=("*",)))
    with running_server(says("hello"), options=anyone) as server:
        answer = server.http.post(PATH, json=BODY, headers={"origin": "null"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert _preflight(server, "https://any.example").status_code == 200
    with running_server(says("hello")) as server:
        answer = server.http.post(PATH, json=BODY, headers={"origin": PAGE})
        assert "access-control-allow-origin" not in answer.headers
        assert _preflight(server, PAGE).status_code == 405


@pytest.mark.parametrize(
    "origin",
    ["", "page.example", "https://page.example/", "https://page.example/x", "https://a b", "*.x",
     "https://user@page.example"],
)  # fmt: skip
def test_what_no_browser_sends_is_no_origin(origin: str) -> None:
    with pytest.raises(HeliosError) as refused:
        AccessOptions(origins=(origin,))
    assert refused.value.where == "--cors-origin"
