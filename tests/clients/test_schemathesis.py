"""Schemathesis over `/openapi.json`: whatever its generator comes up with, valid or not, is
answered as described, and never with a 5xx.

The same cases in every run. What it checks is everything that it knows but whether valid bodies are
accepted: which fields go together is said in words alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from helios.server.openapi import describe
from tests.clients.conftest import KEY
from tests.server.real import DEADLINE_S, ServerProcess

EXAMPLES = 40  # a route and a phase
NEVER_ANSWERED = ("/abort",)  # needs the id of a running request
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "HELIOS_ONLY_LOOPBACK": "1",
    "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent / "offline"), str(ROOT))),
    "SCHEMATHESIS_HOOKS": "tests.clients.api_hooks",
}


def _answers(report: Path) -> Iterator[tuple[str, str, int]]:
    """Method, path and status of every answer in a report."""
    for line in report.read_text().splitlines():
        finished = json.loads(line).get("ScenarioFinished")
        if finished is None:
            continue
        for interaction in finished["recorder"].get("interactions", {}).values():
            request, response = interaction["request"], interaction["response"]
            if response is not None:
                path = "/" + request["uri"].split("/", 3)[3].partition("?")[0]
                yield request["method"], path, response["status_code"]


def test_every_answer_is_as_described(tiny_server: ServerProcess, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="not tested: schemathesis isn't installed")
    (tmp_path / "api.json").write_text(tiny_server.http.get("/openapi.json").text)
    (tmp_path / "settings.toml").write_text(f'[auth.openapi.key]\nbearer = "{KEY}"\n')
    report = tmp_path / "report.ndjson"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", "settings.toml"),
            *("run", "api.json", "--url", tiny_server.url),
            *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
            *("--generation-deterministic", "--max-examples", str(EXAMPLES)),
            *("--continue-on-failure", "--output-sanitize", "false", "--no-color"),
            *("--report", "ndjson", "--report-ndjson-path", str(report)),
        ],
        cwd=tmp_path,  # it leaves folders
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    answers = Counter(_answers(report))
    # It says little if everything was refused.
    for path, operations in describe()["paths"].items():
        if path not in NEVER_ANSWERED:
            asked = {(method.upper(), path.partition("{")[0]) for method in operations}
            answered = sum(
                count
                for (method, where, status), count in answers.items()
                if status == 200 and any(method == m and where.startswith(p) for m, p in asked)
            )
            assert answered > 10, f"{path}: {answered} of {answers}"
    assert tiny_server.http.get("/health").json()["status"] == "ok"
