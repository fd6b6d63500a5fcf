"""A server behind a proxy: below a path, and who the client is."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from helios.errors import HeliosError
from helios.log_lines import FIELDS
from helios.server.options import AccessOptions, HttpOptions, ProxyOptions
from helios.server.options.access import key_digest
from tests.server.scripted import RunningServer, running_server, says

PATH = "/v1/completions"
BODY = {"model": "sample", "prompt": "hello"}


def _behind(**proxy: Any) -> HttpOptions:
    return HttpOptions(proxy=ProxyOptions(**proxy))


def _paths(server: RunningServer) -> set[str]:
    """Routes by which responses are counted."""
    samples = server.metrics()
    return {name for name in samples if name.startswith("flare_http_responses_total")}


@pytest.mark.parametrize("prefix", ["", "/llm/a-b"])
def test_a_prefix_may_be_taken_off_or_not(prefix: str) -> None:
    """Whether the proxy takes off `/llm/a-b` or passes it on, the same routes answer."""
    with running_server(says("hello"), options=_behind(root_path="/llm/a-b")) as server:
        assert server.http.post(prefix + PATH, json=BODY).status_code == 200
        assert server.http.get(prefix + "/v1/models/sample").json()["id"] == "sample"
        assert server.http.get(prefix + "/ready").status_code == 200
        assert server.http.get(prefix + "/nowhere").status_code == 404
        assert server.http.get("/llm" + PATH).status_code == 404
        assert server.http.get("/llm/a-bc/ready").status_code == 404
        assert server.http.get("/llm/a-b/llm/a-b/ready").status_code == 404
        described = server.http.get(prefix + "/openapi.json").json()
        assert described["servers"] == [{"url": "/llm/a-b"}]
        assert any(f'route="{PATH}"' in name for name in _paths(server))


def test_without_a_prefix_the_description_says_so() -> None:
    with running_server(says("hello")) as server:
        assert server.http.get("/openapi.json").json()["servers"] == [{"url": "/"}]


def test_a_prefix_opens_nothing() -> None:
    options = HttpOptions(
        access=AccessOptions(key_digests=(key_digest(b"k"),)), proxy=ProxyOptions("/health")
    )
    with running_server(says("hello"), options=options) as server:
        for path in ("/health/v1/models", "/v1/models", "/health"):
            assert server.http.get(path).status_code == 401, path
        assert server.http.get("/health/health").status_code == 200
        assert server.http.get("/ready").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["llm", "/llm/", "/", "//", "/a//b", "/a/../b", "/.", "/a?b", "/a b", "/caf\u00e9", "/a\n"],
)
def test_what_is_no_prefix_is_refused(path: str) -> None:
    with pytest.raises(HeliosError) as refused:
        ProxyOptions(root_path=path)
    assert refused.value.where == "--root-path"


@pytest.mark.parametrize("address", ["", "proxy.example", "10.0.0.0/33", "10.0.0.1/8", "**"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(HeliosError) as refused:
        ProxyOptions(trusted=(address,))
    assert refused.value.where == "--forwarded-allow-ips"


@pytest.mark.parametrize(
    ("trusted", "forwarded", "client"),
    [
        ((), "203.0.113.7", "127.0.0.1"),
        (("10.0.0.0/8",), "203.0.113.7", "127.0.0.1"),
        (("127.0.0.1",), "203.0.113.7", "203.0.113.7"),
        (("127.0.0.0/8", "::1"), "203.0.113.7, 127.0.0.9", "203.0.113.7"),
        (("127.0.0.1",), "198.51.100.9, 203.0.113.7", "203.0.113.7"),
        (("*",), "198.51.100.9, 203.0.113.7", "198.51.100.9"),
        (("127.0.0.1",), "", "127.0.0.1"),
        (("127.0.0.1",), "x" * 1000, "x" * 256),
    ],
)
def test_a_trusted_proxys_client_is_the_logs(
    trusted: tuple[str, ...], forwarded: str, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, logger="helios.server.access_log"),
        running_server(says("hello"), options=_behind(trusted=trusted)) as server,
    ):
        headers = {"x-forwarded-for": forwarded}
        assert server.http.post(PATH, json=BODY, headers=headers).status_code == 200
    (line,) = (getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS))
    assert line["client"] == client


def test_environment_variables_of_the_library_change_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """uvicorn would read one."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    test_a_trusted_proxys_client_is_the_logs((), "203.0.113.7", "127.0.0.1", caplog)


def test_a_proxys_scheme_changes_no_route() -> None:
    with running_server(says("hello"), options=_behind(trusted=("*",))) as server:
        answer = server.http.get("/v1/models", headers={"x-forwarded-proto": "https"})
        assert answer.status_code == 200
