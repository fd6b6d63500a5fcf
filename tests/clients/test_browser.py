"""A web page of another origin streams an answer: CORS as a real browser enforces it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests.clients.conftest import KEY
from tests.clients.sessions import Ask, At, Http
from tests.server.real import DEADLINE_S, server_process

PAGE = Path(__file__).parent / "browser" / "page.html"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# No window, no user's settings, no asking the maker's servers, no name but this machine's.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="browsers are not tested: there is no chromium here"
)


class _Site(ThreadingHTTPServer):
    """The page's own origin: gives it an order and takes its result."""

    def __init__(self) -> None:
        self.order: dict[str, Any] = {}
        self.results: SimpleQueue[dict[str, Any]] = SimpleQueue()
        super().__init__(("127.0.0.1", 0), _Pages)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Pages(BaseHTTPRequestHandler):
    server: _Site

    def do_GET(self) -> None:
        if self.path == "/page":
            self._answer("text/html", PAGE.read_bytes())
        elif self.path == "/order":
            self._answer("application/json", json.dumps(self.server.order).encode())
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self._answer("text/plain", b"thanks")
        self.server.results.put(json.loads(body))

    def _answer(self, media_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


def _visit(site: _Site, folder: Path, **order: Any) -> dict[str, Any]:
    """What the page says once it has done what it was told."""
    site.order = order
    folder.mkdir()
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder}", f"{site.origin}/page"]
    log = folder / "browser.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as browser:
        try:
            return site.results.get(timeout=DEADLINE_S)
        finally:
            browser.terminate()
            browser.wait(DEADLINE_S)
            site.shutdown()
            thread.join()


def _text(events: list[str]) -> str:
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def test_a_page_that_is_let_in_streams_and_one_that_isn_t_sees_nothing(
    model_core: Path, tmp_path: Path
) -> None:
    with _Site() as friend, _Site() as stranger, _Site() as leaver:
        options = ("--api-key", KEY, "--cors-origin", friend.origin, "--cors-origin", leaver.origin)
        with server_process(model_core, *options) as server:
            at = At(server.url, KEY)
            order = {"url": at.url, "key": at.key, "body": Ask().body() | {"stream": True}}

            seen = _visit(friend, tmp_path / "friend", **order)
            assert seen["status"] == 200
            assert seen["requestId"]
            assert (_text(seen["events"]),) == Http(at).chat(Ask()).texts

            assert _visit(stranger, tmp_path / "stranger", **order) == {"error": "TypeError"}

            body = Ask("Write every number from one to two thousand as words.", max_tokens=4000)
            order["body"] = body.body() | {"stream": True}
            left = _visit(leaver, tmp_path / "leaver", leaveAfter=3, **order)
            assert len(left["events"]) >= 3
            server.http.headers["authorization"] = f"Bearer {KEY}"
            after = server.metrics_until(
                lambda now: now["flare_requests_running"] == now["flare_http_permits"] == 0
            )
            assert after['flare_requests_finished_total{reason="cancelled"}'] == 1
