"""`/metrics` of the whole system: what requests left there, and what they didn't."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.real import ServerProcess, server_process


def test_metrics_count_what_happened(real_server: ServerProcess) -> None:
    def read() -> dict[str, float]:
        text = real_server.http.get("/metrics").text
        return {
            family.name + json.dumps(sample.labels, sort_keys=True): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    before = read()
    # A question that nobody else asks: what is cached runs no PREFILL.
    question = [{"role": "user", "content": "what is counted here?"}]
    body = {"model": "tiny", "messages": question, "max_tokens": 24, "temperature": 0}
    usage = real_server.http.post("/v1/chat/completions", json=body).json()["usage"]
    after = read()

    def grew(name: str, **labels: str) -> float:
        key = name + json.dumps(labels, sort_keys=True)
        return after[key] - before.get(key, 0)

    assert grew("flare_requests_submitted") == 1
    assert grew("flare_output_tokens") == usage["completion_tokens"]
    assert grew("flare_prompt_tokens") == usage["prompt_tokens"]
    prefills = {
        json.loads(name.removeprefix("flare_rounds"))["program"]
        for name in after
        if name.startswith("flare_rounds{") and '"prefill"' in name
    }
    rounds, launches = (
        sum(grew(f"flare_{name}", operation="prefill", program=program) for program in prefills)
        for name in ("rounds", "launches")
    )
    assert 1 <= rounds < launches


@pytest.mark.clause("OBS-6")
def test_metrics_tell_of_all_work_and_nothing_of_a_request(real_server: ServerProcess) -> None:
    before = real_server.metrics()
    body = {"model": "tiny", "prompt": "whispered words " * 9, "max_tokens": 3, "temperature": 0}
    for _ in range(2):
        answer = real_server.http.post(
            "/v1/completions", json=body, headers={"x-request-id": "secretive-id"}
        ).json()
    real_server.http.get("/v1/models/whispered-name")
    real_server.http.get("/whispered-path")
    after = real_server.metrics()

    def grew(name: str) -> float:
        return after[f"flare_{name}"] - before.get(f"flare_{name}", 0)

    assert grew("requests_submitted_total") == grew("prefix_queries_total") == 2
    assert grew("prefix_hits_total") == 1
    usage = answer["usage"]
    assert grew("prefix_reused_tokens_total") == usage["prompt_tokens_details"]["cached_tokens"] > 9
    assert grew("prefix_queried_tokens_total") == 2 * (usage["prompt_tokens"] - 1)
    assert grew("pages_published_total") > 0
    assert grew("snapshots_published_total") > 0
    assert grew("round_device_seconds_total") > 0
    ran = [name for name in after if name.startswith('flare_launches_total{operation="prefill"')]
    assert sum(grew(name.removeprefix("flare_")) for name in ran) > 0
    assert grew("cached_tokens_total") == grew("prefix_reused_tokens_total")
    assert grew("request_first_token_seconds_count") == 2
    assert grew("request_queue_seconds_count") == grew("request_prefill_seconds_count") == 2
    assert grew("request_output_tokens_sum") == 6
    assert grew("inter_token_seconds_count") == 4
    assert grew('requests_finished_total{reason="limit"}') == 2
    text = real_server.http.get("/metrics").text
    assert "whispered" not in text
    assert "secretive" not in text


@pytest.mark.clause("OBS-6")
def test_several_http_processes_are_one_server_even_if_one_dies(core_folder: Path) -> None:
    with server_process(core_folder, "--threads", "1", "--http-workers", "2") as server:
        assert server.process.stdout is not None
        assert server.process.stdout.readline() == "serving with 2 of 2 HTTP processes\n"
        shown: list[float] = []

        def scrape() -> dict[str, float]:
            # A connection of its own, which either process may get.
            with httpx.Client(base_url=server.url, timeout=60) as fresh:
                metrics = replace(server, http=fresh).metrics()
            responses = [
                v for k, v in metrics.items() if k.startswith("flare_http_responses_total")
            ]
            shown.append(sum(responses))
            return metrics

        body = {"model": "tiny", "prompt": "counted", "max_tokens": 2, "temperature": 0}
        for _ in range(12):
            with httpx.Client(base_url=server.url, timeout=60) as fresh:
                assert fresh.post("/v1/completions", json=body).status_code == 200
        metrics = scrape()
        assert shown == [12]
        assert metrics["flare_http_processes"] == 2
        assert metrics["flare_request_output_tokens_sum"] == 24
        assert metrics["flare_http_permits"] == 0
        os.kill(server.http_pids()[0], signal.SIGKILL)
        answered = 0
        while answered < 20:
            try:
                metrics = scrape()
            except httpx.TransportError:
                continue  # it waited at the process that died
            answered += 1
            assert metrics["flare_request_output_tokens_sum"] == 24
        assert shown == sorted(shown)
