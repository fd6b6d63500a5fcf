"""`helios serve` on the cuda device over the stand-in driver: answers, and what a failing GPU makes
of a server."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from helios.core import open_core
from ignition.preparation import signing
from tests.server.real import DEADLINE_S, NAMESPACE, ServerProcess
from tests.standin_driver.building import needs_standin, standin_environment
from tests.standin_driver.cuda_core import write_cuda_core

BODY = {"model": "tiny", "prompt": [3, 1, 4, 1, 5], "max_tokens": 6, "temperature": 0}


@pytest.fixture(scope="module")
def cuda_folder(
    core_folder: Path, publisher_key: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    needs_standin()
    key = signing.read_private_key(publisher_key)
    core = open_core(core_folder, accept=NAMESPACE)
    return write_cuda_core(core, tmp_path_factory.mktemp("cuda") / "core", key)


@contextlib.contextmanager
def serving(core: Path, log: Path, **settings: str) -> Iterator[ServerProcess]:
    command = [
        *(sys.executable, "-m", "tests.standin_driver.played_server"),
        *("serve", str(core), "--accept", NAMESPACE, "--port", "0"),
    ]
    with log.open("w") as lines:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
            env=standin_environment(**settings),
        )
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            ready = process.stdout.readline()
            assert ready.startswith("ready: "), log.read_text()
            with httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
                yield ServerProcess(process, url, http, ready)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def ask(server: ServerProcess) -> httpx.Response:
    return server.http.post("/v1/completions", json=BODY)


def test_a_core_that_has_cuda_alone_is_served_on_it(
    cuda_folder: Path, real_server: ServerProcess, tmp_path: Path
) -> None:
    """The reference plays the rounds, so tokens are those of the cpu device."""
    log = tmp_path / "log"
    with serving(cuda_folder, log) as server:
        assert "cuda/sm_90" in server.ready
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: ask(server), range(6)))
        (expected,) = ask(real_server).json()["choices"]
        for answer in answers:
            (choice,) = answer.json()["choices"]
            assert choice["text"] == expected["text"]
        assert server.http.get("/health").status_code == 200
        assert server.terminate() == 0
    assert "GPU memory: " in log.read_text()


@pytest.mark.parametrize(
    ("fails", "line"),
    [
        (
            "cuMemAlloc:2:2",
            r"helios: GPU memory for workspace: its \d+ bytes aren't free: \d+ are\. Ask for less"
            r" with --cache-memory, or prepare shorter prompt programs",
        ),
        (
            "cuModuleLoadData:2:2",
            r"helios: GPU, loading module module\.work: CUDA_ERROR_OUT_OF_MEMORY: out of memory\."
            r" Ask for less with --cache-memory, or free the GPU's memory",
        ),
        (
            "run:700:1",
            r"helios: GPU, running round 1 of calibration: CUDA_ERROR_ILLEGAL_ADDRESS: .*report it"
            r" with the core's digest",
        ),
    ],
)
def test_a_start_that_fails_is_told_in_a_line(cuda_folder: Path, fails: str, line: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.standin_driver.played_server"),
            *("serve", str(cuda_folder), "--accept", NAMESPACE, "--port", "0"),
        ],
        capture_output=True,
        env=standin_environment(STANDIN_FAIL=fails),
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == "", "a refusal isn't preceded by a promise"
    told = done.stderr.splitlines()[-1]
    assert re.fullmatch(line, told), done.stderr


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        ("run:700:25", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("run:719:25", "CUDA_ERROR_LAUNCH_FAILED"),
        ("run:46:25", "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ("cuGraphLaunch:2:25", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("hang:1:25", "hasn't ended after 0.2 s"),
    ],
)
def test_a_gpu_that_fails_makes_the_server_say_why(
    cuda_folder: Path, tmp_path: Path, fails: str, reason: str
) -> None:
    log = tmp_path / "log"
    settings = {"STANDIN_FAIL": fails, "STANDIN_ROUND_LIMIT_S": "0.2"}
    with serving(cuda_folder, log, **settings) as server:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: ask(server), range(12)))
        failed = [answer for answer in answers if answer.status_code != 200]
        assert failed
        for answer in failed:
            assert answer.status_code in (500, 503)
            assert answer.json()["error"]["code"], answer.text
        assert any(reason in answer.text for answer in failed) or reason in log.read_text()
        health = server.http.get("/health")
        assert health.status_code == 500
        assert reason in health.text
        assert server.terminate() == 1, "who manages processes is told, too"
    told = log.read_text().splitlines()[-1]
    assert re.search(f"error http: this server's model had failed: .*{reason}", told)
