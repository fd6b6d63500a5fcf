"""Several HTTP processes over one worker: as one server, whatever becomes of one of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.http_processes import Processes, ends, http_processes
from tests.server.real import run_cli

PATH = "/v1/completions"
BODY: dict[str, Any] = {"model": "tiny", "prompt": "hello", "seed": 3, "ignore_eos": True}
CHAT = "/v1/chat/completions"
# Ten megabytes, much more than kernels take of an answer that nobody reads.
LONG: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "stream": True,
    "ignore_eos": True,
    "max_tokens": 400,
    "n": 24,
    "logprobs": True,
    "top_logprobs": 20,
}
PERMITS = "flare_http_permits"


@pytest.fixture(scope="module")
def servers(core_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Three processes, which no test may end."""
    log = tmp_path_factory.mktemp("logs") / "server.log"
    with http_processes(core_folder, log, 3) as processes:
        yield processes


def _each(servers: Processes, stack: ExitStack) -> list[httpx.Client]:
    """A client of each process."""
    return [stack.enter_context(servers.client(pid)) for pid in servers.http]


def _until(
    servers: Processes, client: httpx.Client, condition: Callable[[dict[str, float]], bool]
) -> dict[str, float]:
    """Metrics for which `condition` holds, which others bring about."""
    for _ in range(20_000):
        metrics = servers.metrics(client)
        if condition(metrics):
            return metrics
    raise AssertionError(f"never came true; last: {metrics}")


def _text(answer: str) -> str:
    *chunks, done = [line[6:] for line in answer.split("\n") if line]
    assert done == "[DONE]"
    return "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks)


def test_every_process_is_the_same_server(servers: Processes) -> None:
    with ExitStack() as stack:
        clients = _each(servers, stack)
        assert len({json.dumps(client.get("/v1/models").json()) for client in clients}) == 1
        assert len({json.dumps(client.get("/version").json()) for client in clients}) == 1
        for client in clients:
            assert client.get("/health").json()["status"] == "ok"
            assert client.get("/ready").json()["ready"]
        answers = [client.post(PATH, json=BODY | {"max_tokens": 20}).json() for client in clients]
        assert len({answer["choices"][0]["text"] for answer in answers}) == 1
        assert len({answer["id"] for answer in answers}) == len(answers)


def test_a_scrape_of_any_process_is_of_all(servers: Processes) -> None:
    answered = 'flare_http_responses_total{route="/v1/models/{model:path}",status="200"}'
    with ExitStack() as stack:
        clients = _each(servers, stack)
        before = servers.metrics(clients[0]).get(answered, 0)
        for client in clients:
            assert client.get("/v1/models/tiny").status_code == 200
        for client in clients:
            assert servers.metrics(client)[answered] == before + 3


def test_a_reset_by_any_process_is_one_for_all(servers: Processes) -> None:
    body = BODY | {"prompt": list(range(40, 80)), "max_tokens": 1}

    def reused(client: httpx.Client) -> int:
        usage = client.post(PATH, json=body).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    with ExitStack() as stack:
        first, second, third = _each(servers, stack)
        reused(first)
        assert reused(second) > 0
        assert third.post("/reset_prefix_cache").status_code == 200
        assert reused(second) == 0


def test_a_request_is_aborted_through_any_process(servers: Processes) -> None:
    with ExitStack() as stack:
        first, second, third = _each(servers, stack)
        name = {"x-request-id": "to-be-aborted"}
        streamed = stack.enter_context(first.stream("POST", CHAT, json=LONG, headers=name))
        lines = streamed.iter_lines()
        next(lines)
        aborted = second.post("/abort", json={"request_id": "to-be-aborted"})
        assert aborted.status_code == 200
        assert third.post("/abort", json={"request_id": "of nobody"}).status_code == 404
        # It ends in each of its choices; what has been made until then is there to be read.
        watching = _until(servers, second, lambda now: now["flare_requests_running"] == 0)
        assert watching['flare_requests_finished_total{reason="cancelled"}'] >= 1


@pytest.mark.clause("HTTP-1")
def test_permits_are_counted_over_all_and_come_back_from_the_dead(
    core_folder: Path, tmp_path: Path
) -> None:
    options = ("--max-active", 2, "--queue-capacity", 2)
    with (
        http_processes(core_folder, tmp_path / "log", 2, *options) as servers,
        ExitStack() as stack,
    ):
        first, doomed = servers.http
        watching = stack.enter_context(servers.client(first))
        unread = []
        for pid in (first, doomed, doomed, doomed):
            client = stack.enter_context(servers.client(pid))
            stream = stack.enter_context(client.stream("POST", CHAT, json=LONG))
            unread.append((client, stream.iter_lines()))
            next(unread[-1][1])
        _until(servers, watching, lambda now: now[PERMITS] == 4)
        for client in (watching, stack.enter_context(servers.client(doomed))):
            refused = client.post(PATH, json=BODY)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        os.kill(doomed, signal.SIGKILL)
        _until(servers, watching, lambda now: now[PERMITS] == 1)
        # Those places are free again, as soon as the first process has heard of the death.
        body = BODY | {"max_tokens": 2}
        while (answer := watching.post(PATH, json=body)).status_code == 429:
            pass
        assert answer.status_code == 200


def test_a_process_that_is_killed_disturbs_nobody_else(core_folder: Path, tmp_path: Path) -> None:
    body = BODY | {"max_tokens": 300, "stream": True}
    with (
        http_processes(core_folder, tmp_path / "log", 3) as servers,
        ExitStack() as stack,
        ThreadPoolExecutor(8) as pool,
    ):
        doomed = servers.others[0]
        watching = stack.enter_context(servers.client(servers.process.pid))
        alone = [_text(watching.post(PATH, json=body | {"seed": seed}).text) for seed in range(8)]
        theirs = stack.enter_context(servers.client(doomed))
        lost = stack.enter_context(theirs.stream("POST", CHAT, json=LONG)).iter_lines()
        next(lost)
        living = [pid for pid in servers.http if pid != doomed]
        clients = [stack.enter_context(servers.client(living[i % 2])) for i in range(8)]

        def ask(seed: int) -> str:
            with clients[seed].stream("POST", PATH, json=body | {"seed": seed}) as response:
                lines = response.iter_lines()
                first = next(lines)
                if seed == 0:
                    os.kill(doomed, signal.SIGKILL)
                return "\n".join((first, *lines))

        assert [_text(answer) for answer in pool.map(ask, range(8))] == alone
        with pytest.raises(httpx.RemoteProtocolError):
            list(lost)
        after = _until(
            servers,
            watching,
            lambda now: now["flare_requests_running"] == now[PERMITS] == 0,
        )
        assert after["flare_slots_used"] == after["flare_integrity_violations_total"] == 0
        # Another process takes its place, and is as good.
        while len(servers.others) < 2:
            pass
        (heir,) = set(servers.http) - set(living)
        with servers.client(heir) as client:
            assert _text(client.post(PATH, json=body | {"seed": 0}).text) == alone[0]
        log = servers.log.read_text()
        assert "HTTP process 2 of 3 ended with status -9 and is started again" in log


def test_a_dead_worker_is_known_to_every_process(core_folder: Path, tmp_path: Path) -> None:
    with (
        http_processes(core_folder, tmp_path / "log", 3) as servers,
        ExitStack() as stack,
    ):
        clients = _each(servers, stack)
        os.kill(servers.worker, signal.SIGKILL)
        for client in clients:
            while client.get("/health").status_code == 200:
                pass
            assert client.get("/health").json()["status"] == "failed"
            assert client.post(PATH, json=BODY).json()["error"]["code"] == "model_failed"


def test_all_processes_end_with_a_signal_to_the_first(core_folder: Path, tmp_path: Path) -> None:
    with http_processes(core_folder, tmp_path / "log", 3) as servers:
        others = [*servers.others, servers.worker]
        with ExitStack() as stack:
            clients = _each(servers, stack)
            unread = [
                stack.enter_context(client.stream("POST", CHAT, json=LONG)).iter_lines()
                for client in clients
            ]
            for lines in unread:
                next(lines)
            servers.process.send_signal(signal.SIGTERM)
            servers.process.send_signal(signal.SIGTERM)
            assert servers.process.wait(120) == 0
        assert all(ends(pid) for pid in others)
        assert "Traceback" not in servers.log.read_text()


def test_a_signal_to_another_process_is_left_to_the_first(
    servers: Processes,
) -> None:
    other = servers.others[0]
    with servers.client(other) as client:
        os.kill(other, signal.SIGTERM)
        os.kill(other, signal.SIGINT)
        assert client.get("/ready").status_code == 200


def test_nobody_outlives_the_first_process(core_folder: Path, tmp_path: Path) -> None:
    with http_processes(core_folder, tmp_path / "log", 3) as servers:
        others = [*servers.others, servers.worker]
        servers.process.kill()
        assert all(ends(pid) for pid in others)


def test_an_address_in_use_is_named_though_it_is_shared(
    servers: Processes, core_folder: Path
) -> None:
    ended = run_cli(
        "serve", core_folder, "--accept", "tests", "--port", servers.port, "--http-workers", 2
    )
    assert ended.returncode == 2
    assert f"127.0.0.1:{servers.port}" in ended.stderr


def test_a_queue_too_short_to_be_shared_is_refused(core_folder: Path) -> None:
    options = ("--port", 0, "--http-workers", 3, "--queue-capacity", 2, "--threads", 1)
    ended = run_cli("serve", core_folder, "--accept", "tests", *options)
    assert ended.returncode == 2
    assert "--http-workers: 3 processes can't share a queue of 2" in ended.stderr
