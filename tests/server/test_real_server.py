"""The whole system on a real socket: `helios serve`, a real core, the OpenAI SDK."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from helios.core import open_core
from tests.server.real import DEADLINE_S, NAMESPACE, ServerProcess, run_cli, server_process

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def _sdk(server: ServerProcess) -> OpenAI:
    return OpenAI(base_url=server.url + "/v1", api_key="none", timeout=DEADLINE_S, max_retries=0)


def _chat(client: OpenAI, **more: Any) -> Any:
    options: dict[str, Any] = {"model": "tiny", "messages": QUESTION, "max_tokens": 24, "seed": 5}
    return client.chat.completions.create(**options | more)


def test_a_streamed_answer_is_the_whole_answer(real_server: ServerProcess) -> None:
    client = _sdk(real_server)
    whole = _chat(client)
    chunks = list(_chat(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content != ""
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    usage = chunks[-1].usage
    assert usage.total_tokens == whole.usage.total_tokens
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1
    assert whole.usage.completion_tokens <= 24


def test_completions(real_server: ServerProcess) -> None:
    client = _sdk(real_server)
    options: dict[str, Any] = {"model": "little", "prompt": "hello", "max_tokens": 16, "seed": 1}
    whole = client.completions.create(**options, logprobs=0)
    chunks = list(client.completions.create(**options, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    logprobs = whole.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert len(logprobs.token_logprobs) == whole.usage.completion_tokens
    assert all(value <= 0 for value in logprobs.token_logprobs if value is not None)


def test_chat_logprobs(real_server: ServerProcess) -> None:
    answer = _chat(_sdk(real_server), logprobs=True, temperature=0)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert all(entry.logprob <= 0 for entry in entries)


def test_seeds_decide_sampled_answers(real_server: ServerProcess) -> None:
    client = _sdk(real_server)

    def text(**more: Any) -> str:
        return str(_chat(client, temperature=1.5, **more).choices[0].message.content)

    assert text(seed=1) == text(seed=1)
    assert len({text(seed=seed) for seed in range(4)}) > 1
    assert len({text(seed=None) for _ in range(4)}) > 1


def test_thirty_two_clients_get_the_answers_that_they_get_alone(
    real_server: ServerProcess,
) -> None:
    def request(number: int) -> dict[str, Any]:
        return {
            "model": "tiny",
            "messages": [{"role": "user", "content": "word " * (1 + 3 * number)}],
            "max_tokens": 4 + number,
            "seed": number,
            "temperature": 0 if number % 2 else 1.0,
        }

    async def ask(client: AsyncOpenAI, number: int) -> str:
        if number % 3:
            answer = await client.chat.completions.create(**request(number))
            return str(answer.choices[0].message.content)
        stream = await client.chat.completions.create(**request(number), stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    async def ask_all() -> list[str]:
        async with AsyncOpenAI(
            base_url=real_server.url + "/v1", api_key="none", timeout=DEADLINE_S, max_retries=0
        ) as client:
            return list(await asyncio.gather(*(ask(client, n) for n in range(32))))

    together = asyncio.run(ask_all())
    client = _sdk(real_server)
    alone = [
        client.chat.completions.create(**request(n)).choices[0].message.content for n in range(32)
    ]
    assert together == alone


@pytest.mark.clause("HTTP-3")
def test_clients_that_vanish_free_their_lanes(real_server: ServerProcess) -> None:
    cancelled = 'flare_requests_finished_total{reason="cancelled"}'
    before = real_server.metrics()
    body = {"model": "tiny", "messages": QUESTION, "max_tokens": 400, "stream": True}
    for _ in range(6):  # an answer may end by itself before its client has gone
        with (
            httpx.Client(base_url=real_server.url, timeout=DEADLINE_S) as client,
            client.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            lines = filter(None, response.iter_lines())
            assert [next(lines)[:6] for _ in range(2)] == ["data: "] * 2  # role, first token
    after = real_server.metrics_until(
        lambda now: now["flare_requests_running"] == now["flare_http_permits"] == 0
    )
    assert after["flare_slots_used"] == 0
    # Pages of published prompts stay in use; what is in flight doesn't.
    assert after["flare_frames_in_flight"] == 0
    assert after["flare_requests_submitted_total"] >= before["flare_requests_submitted_total"]
    assert after[cancelled] > before[cancelled]
    assert _chat(_sdk(real_server)).choices[0].message.content


def test_bad_requests_are_the_sdks_errors_and_harm_nothing(real_server: ServerProcess) -> None:
    client = _sdk(real_server)
    with pytest.raises(openai.NotFoundError) as unknown:
        _chat(client, model="gpt")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        _chat(client, messages=[{"role": "user", "content": "x" * 3000}])
    assert long.value.code == "context_length_exceeded"
    assert "512" in str(long.value)
    with pytest.raises(openai.BadRequestError) as hot:
        _chat(client, temperature=3)
    assert hot.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as functions:
        _chat(client, functions=[{"name": "f"}])
    assert functions.value.param == "functions"
    with pytest.raises(openai.BadRequestError) as choice:
        _chat(client, tool_choice="required")
    assert choice.value.param == "tool_choice"
    assert real_server.http.post("/v1/chat/completions", content=b"{").status_code == 400
    assert real_server.http.get("/health").status_code == 200
    assert _chat(client).choices[0].message.content


def test_a_prompt_that_fills_the_context_leaves_one_token(real_server: ServerProcess) -> None:
    answer = _sdk(real_server).completions.create(model="tiny", prompt=[5] * 511)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (511, 1)


def test_models_version_and_description(real_server: ServerProcess) -> None:
    assert [model.id for model in _sdk(real_server).models.list()] == ["tiny", "little"]
    version = real_server.http.get("/version").json()
    fingerprint = _chat(_sdk(real_server)).system_fingerprint
    assert re.match(f"fp_{version['core'][:12]}_(cpu|cuda)-", fingerprint)
    assert real_server.http.get("/openapi.json").json()["openapi"] == "3.1.0"
    ready = real_server.http.get("/ready").json()
    assert {"frontend", "ready", "worker_load"} <= set(ready["startup_ms"])


@pytest.mark.clause("HTTP-1")
def test_permits_are_the_cores_queue_and_the_slots(
    real_server: ServerProcess, core_folder: Path
) -> None:
    contract = open_core(core_folder, accept=NAMESPACE).contract
    assert contract.defaults.queue_capacity is not None
    expected = contract.defaults.queue_capacity + contract.max_active
    assert real_server.metrics()["flare_http_permit_capacity"] == expected


@pytest.mark.tiny_model
@pytest.mark.clause("BOOT-1", "BOOT-7", "BOOT-9")
def test_resulting_capacities_are_printed_and_shown(core_folder: Path) -> None:
    """What is said explicitly wins over the core's defaults; the rest is the core's."""
    contract = open_core(core_folder, accept=NAMESPACE).contract
    assert contract.defaults.queue_capacity != 3
    options = ("--threads", "1", "--max-active", "2", "--queue-capacity", "3")
    with server_process(core_folder, *options, "--cache-memory", "2MiB") as server:
        metrics = server.metrics()
        assert metrics["flare_request_slots"] == 2
        assert metrics["flare_queue_capacity"] == 3
        assert metrics["flare_http_permit_capacity"] == 5
        assert metrics["flare_context_tokens"] == contract.max_context_tokens
        assert metrics["flare_speculative_width"] == 0
        pages, tokens = metrics["flare_cache_pages"], metrics["flare_cache_tokens"]
        assert tokens == pages * contract.model.cache.page_tokens
        page_nbytes = metrics["flare_cache_bytes"] / pages
        assert (2 << 20) - page_nbytes < metrics["flare_cache_bytes"] <= 2 << 20
        assert metrics["flare_pages_free"] == pages
        assert f"2 slots, queue of 3, {tokens:.0f} tokens of cache (2.0 MiB)" in server.ready
        assert f"context of {contract.max_context_tokens}" in server.ready
        assert metrics["flare_snapshot_rows"] == 4
        assert "4 snapshots" in server.ready


@pytest.mark.clause("BOOT-9")
def test_the_cores_defaults_fill_what_isn_t_said(
    real_server: ServerProcess, core_folder: Path
) -> None:
    contract = open_core(core_folder, accept=NAMESPACE).contract
    metrics = real_server.metrics()
    assert metrics["flare_queue_capacity"] == contract.defaults.queue_capacity
    assert metrics["flare_request_slots"] == contract.max_active


def test_a_reader_that_pauses_loses_nothing_and_holds_up_nobody(
    real_server: ServerProcess,
) -> None:
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 300, "seed": 3, "logprobs": 0}
    whole = real_server.http.post("/v1/completions", json=body).json()["choices"][0]
    with httpx.Client(base_url=real_server.url, timeout=DEADLINE_S) as client:
        stream = body | {"stream": True}
        with client.stream("POST", "/v1/completions", json=stream) as response:
            lines = filter(None, response.iter_lines())
            first = next(lines)
            for _ in range(3):
                assert _chat(_sdk(real_server)).choices[0].message.content
            real_server.metrics_until(lambda now: now["flare_requests_running"] == 0)
            events = [first, *lines]
    assert events[-1] == "data: [DONE]"
    choices = [json.loads(e.removeprefix("data: "))["choices"][0] for e in events[:-1]]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    tokens = [token for choice in choices for token in choice["logprobs"]["tokens"]]
    assert tokens == whole["logprobs"]["tokens"]


def test_a_dead_worker_ends_streams_with_an_error_and_is_unhealthy(core_folder: Path) -> None:
    with server_process(core_folder, "--threads", "1") as server:
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 400, "stream": True}
        os.kill(server.worker_pid(), signal.SIGSTOP)
        with server.http.stream("POST", "/v1/completions", json=body) as response:
            os.kill(server.worker_pid(), signal.SIGKILL)
            events = [line for line in response.iter_lines() if line]
        assert response.status_code == 200
        assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "model_failed"
        assert server.http.get("/health").status_code == 500
        assert server.http.get("/ready").json()["reason"] == "failed"
        refused = server.http.post("/v1/completions", json=body | {"stream": False})
        assert refused.status_code == 500
        assert server.metrics()["flare_ready"] == 0
        assert server.terminate() == 1


def test_the_end_lets_answers_finish(core_folder: Path) -> None:
    with server_process(core_folder, "--threads", "1") as server:
        worker = server.worker_pid()
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 300, "temperature": 0}
        expected = server.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
        with server.http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
            server.process.send_signal(signal.SIGTERM)
            events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        assert events[-1] == "[DONE]"
        chunks = [json.loads(event) for event in events[:-1]]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected
        assert server.process.wait(DEADLINE_S) == 0
        assert not Path(f"/proc/{worker}").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_an_idle_server_cleanly(core_folder: Path, number: int) -> None:
    with server_process(core_folder, "--threads", "1") as server:
        server.process.send_signal(number)
        assert server.process.wait(DEADLINE_S) == 0


def test_a_core_that_is_not_accepted_is_not_served(core_folder: Path) -> None:
    ended = run_cli("serve", core_folder, "--accept", "nobody", "--port", "0")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "'tests'" in ended.stderr
    assert "ready" not in ended.stdout


def test_a_folder_that_is_no_core_is_not_served(tmp_path: Path) -> None:
    ended = run_cli("serve", tmp_path, "--accept", "tests", "--port", "0")
    assert ended.returncode == 2
    assert "core.pb" in ended.stderr


def test_an_address_in_use_is_named(core_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_cli("serve", core_folder, "--accept", "tests", "--port", port)
    assert ended.returncode == 2
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "--port" in ended.stderr
