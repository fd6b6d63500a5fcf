"""Prometheus's own programs, where the machine has them: `promtool`, and a server that scrapes.

Debian's package `prometheus` has both. Tests that need them are skipped without; where
HELIOS_TESTS_NEED_PROMETHEUS is set, as in `.ci/run`, they fail instead.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
DEADLINE_S = 120
_LOOKS = 20_000


def program(name: str) -> str:
    """The program's path; skips or fails the test without it."""
    path = shutil.which(name)
    if path is None:
        text = f"{name} is missing. Install it: apt-get install prometheus"
        if os.environ.get("HELIOS_TESTS_NEED_PROMETHEUS"):
            pytest.fail(text)
        pytest.skip(text)
    return path


def promtool(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    """`promtool` to its end."""
    return subprocess.run(
        [program("promtool"), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@dataclass
class Prometheus:
    """A running Prometheus, by its HTTP API."""

    http: httpx.Client

    def api(self, path: str, **parameters: str) -> Any:
        """The data of an answer."""
        answer = self.http.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An expression's value now: labels and number of each series."""
        result = self.api("query", query=expression)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def query_until(
        self, expression: str, condition: Callable[[list[tuple[dict[str, str], float]]], bool]
    ) -> list[tuple[dict[str, str], float]]:
        """The first value for which `condition` holds. It is asked for over and over: what is
        waited for, a scrape, happens in another process."""
        return self.until(lambda: self.query(expression), condition)

    def until(self, read: Callable[[], Any], condition: Callable[[Any], bool]) -> Any:
        """What `read` gives first for which `condition` holds."""
        for _ in range(_LOOKS):
            found = read()
            if condition(found):
                return found
        raise AssertionError(f"never came true; last: {found}")


@contextlib.contextmanager
def prometheus(config: str, folder: Path) -> Iterator[Prometheus]:
    """Prometheus with this configuration, on a port of its own, until the block ends."""
    path = folder / "prometheus.yml"
    path.write_text(config)
    command = [
        program("prometheus"),
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        log: list[str] = []
        try:
            address = None
            while address is None:
                line = process.stderr.readline()
                assert line, f"Prometheus has ended: {''.join(log)}"
                log.append(line)
                address = re.search(r'msg="Listening on" address=(\S+)', line)
            reading = threading.Thread(target=log.extend, args=(process.stderr,))
            reading.start()
            with httpx.Client(base_url=f"http://{address[1]}", timeout=DEADLINE_S) as http:
                yield Prometheus(http)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
    reading.join()
