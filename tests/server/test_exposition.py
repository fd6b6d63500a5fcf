"""`/metrics` over a scripted worker: every number under its name, and nothing of clients."""

from __future__ import annotations

import platform
import re
import socket
from collections.abc import AsyncGenerator
from dataclasses import replace

import httpx
import msgspec
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from helios.process_usage import ProcessUsage
from helios.server.exposition import CONTENT_TYPE, gauges, histogram, render
from helios.server.http_families import http_families
from helios.server.lifecycle import RequestEvent
from helios.server.metrics import HttpMetrics
from helios.server.worker_families import worker_families
from helios.version import VERSION
from helios.worker.histograms import HistogramCounts
from helios.worker.messages import Submit, TokensEvent
from tests.server.scripted import OPTIONS, RunningServer, running_server, says
from tests.server.scripted_statistics import scripted_statistics

VLLM = replace(OPTIONS, vllm_metrics=True)
CHAT = {"model": "sample", "messages": [{"role": "user", "content": "whispered words"}]}
# The label names that there are, for all time: what a client sends is none of their values.
LABELS = {
    *("core", "kernel_path", "model", "python", "version"),
    *("le", "operation", "phase", "process", "program", "reason", "route", "status", "tier"),
}


def families(server: RunningServer) -> dict[str, Metric]:
    text = server.http.get("/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(server: RunningServer) -> dict[str, float]:
    return server.metrics()


def test_the_format_is_prometheuss() -> None:
    with running_server(says("hello"), options=VLLM) as server:
        response = server.http.get("/metrics")
        assert response.headers["content-type"] == CONTENT_TYPE
        lines = response.text.splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    helps = {line.split(" ", 3)[2]: line.split(" ", 3)[3] for line in lines if "# HELP" in line}
    assert helps.keys() == set(names)
    assert all(text.endswith(".") and len(text) > 10 for text in helps.values())
    for line in lines:
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            assert name.startswith(("flare_", "vllm:"))
            assert (kind == "counter") == name.endswith("_total")
            assert kind in ("counter", "gauge", "histogram")
            if not name.startswith("vllm:"):
                assert not re.search(r"_(ms|ns|s|nbytes|kib|percent)(_|$)", name)


@pytest.mark.clause("OBS-6")
def test_the_workers_numbers_have_their_names() -> None:
    said = scripted_statistics()
    with running_server(says("hello")) as server:
        shown = values(server)
    for name, value in said.counters.items():
        if name.endswith("_ns"):
            seconds = name.removesuffix("_ns") + "_seconds"
            assert shown[f"flare_{seconds}_total"] == value / 1e9
        else:
            assert shown[f"flare_{name}_total"] == value
    for name, value in said.gauges.items():
        assert shown[f"flare_{name}"] == value
    for reason, value in said.finished.items():
        assert shown[f'flare_requests_finished_total{{reason="{reason}"}}'] == value
    program = '{operation="decode",program="decode.b2"}'
    for name, value in (
        ("rounds", 3),
        ("launches", 21),
        ("round_lanes", 5),
        ("round_lanes_offered", 6),
        ("round_tokens", 5),
        ("round_tokens_offered", 6),
    ):
        assert shown[f"flare_{name}_total{program}"] == value
    tier = said.tiers["files"]
    for name, value in (
        ("stored_total", tier.stored),
        ("stored_bytes_total", tier.stored_nbytes),
        ("restored_total", tier.restored),
        ("restored_bytes_total", tier.restored_nbytes),
        ("evicted_total", tier.evicted),
        ("dropped_total", tier.dropped),
        ("damaged_total", tier.damaged),
        ("failures_total", tier.failures),
        ("entries", tier.entries),
        ("bytes", tier.nbytes),
        ("limit_bytes", tier.limit_nbytes),
    ):
        assert shown[f'flare_offload_{name}{{tier="files"}}'] == value
    assert shown['flare_request_queue_seconds_bucket{le="0.5"}'] == 1
    assert shown['flare_request_queue_seconds_bucket{le="2.0"}'] == 3
    assert shown['flare_request_queue_seconds_bucket{le="+Inf"}'] == 6
    assert shown["flare_request_queue_seconds_count"] == 6
    assert shown["flare_request_queue_seconds_sum"] == 9.5
    assert shown['flare_process_resident_bytes{process="worker"}'] == 1 << 20
    assert shown['flare_process_cpu_seconds_total{process="worker"}'] == 2.5
    assert shown['flare_process_resident_bytes{process="http"}'] > 1 << 20


def test_every_number_of_the_worker_is_shown() -> None:
    """A number that the worker counts and nobody shows would be one that nobody sees."""
    shown = len(worker_families(scripted_statistics()))
    more = msgspec.structs.replace(scripted_statistics(), tiers={})
    without_tiers = len(worker_families(more))
    said = scripted_statistics()
    expected = len(said.counters) + len(said.gauges) + len(said.histograms) + 6 + 1
    assert without_tiers == expected
    assert shown == expected + 11


def test_what_runs_here() -> None:
    with running_server(says("hello")) as server:
        server.lifecycle.startup_ms |= {"frontend": 50.0, "worker_load": 1500.0, "ready": 2000.0}
        found = families(server)
        shown = values(server)
    assert found["flare_build_info"].samples[0].labels == {
        "model": "sample",
        "version": VERSION,
        "core": "0123456789abcdef",
        "kernel_path": "cpu/portable",
        "python": platform.python_version(),
    }
    assert shown['flare_startup_phase_seconds{process="http",phase="frontend"}'] == 0.05
    assert shown['flare_startup_phase_seconds{process="worker",phase="load"}'] == 1.5
    assert shown["flare_startup_seconds"] == 2
    assert shown["flare_ready"] == shown["flare_worker_up"] == shown["flare_http_processes"] == 1
    assert shown["flare_stalled"] == 0
    assert shown["flare_http_permit_capacity"] == 8
    assert shown["flare_request_slots"] == 4
    assert shown["flare_cache_tokens"] == 96


def test_before_there_is_a_model() -> None:
    with running_server(says("hello"), loaded=False, options=VLLM) as server:
        shown = values(server)
    assert shown["flare_ready"] == shown["flare_worker_up"] == 0
    assert "flare_requests_running" not in shown
    assert not [name for name in shown if name.startswith("vllm:")]


def test_a_stuck_worker_leaves_the_processs_own_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helios.server.scrape._STATISTICS_SECONDS", 0.01)
    with running_server(says("hello"), options=VLLM) as server:
        server.client.stuck = True
        shown = values(server)
    assert shown["flare_ready"] == 1
    assert shown["flare_worker_up"] == 0
    assert "flare_requests_submitted_total" not in shown
    assert 'vllm:inter_token_latency_seconds_count{model_name="sample"}' in shown
    assert 'vllm:prompt_tokens_total{model_name="sample"}' not in shown


@pytest.mark.clause("OBS-6")
def test_answers_are_measured() -> None:
    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        yield TokensEvent(submit.request_id, [65, 66], [-0.5] * 2, 0)
        yield TokensEvent(submit.request_id, [67, 68, 69], [-0.5] * 3, 0)
        yield TokensEvent(submit.request_id, [70], [-0.5], 2)

    with running_server(script) as server:
        for n in (1, 3):
            body = CHAT | {"max_tokens": 6, "n": n}
            assert server.http.post("/v1/chat/completions", json=body).status_code == 200
        prompts = [s for s in server.client.submitted if s.sibling_of is None]
        shown = values(server)
    # Four answers of six tokens each, to two prompts.
    assert shown["flare_request_first_token_seconds_count"] == 4
    assert shown["flare_inter_token_seconds_count"] == 4 * 5
    assert shown["flare_request_decode_seconds_count"] == 4
    assert shown["flare_request_end_to_end_seconds_count"] == 4
    assert shown["flare_request_output_tokens_count"] == 4
    assert shown["flare_request_output_tokens_sum"] == 24
    assert shown["flare_request_output_limit_tokens_sum"] == 24
    assert shown["flare_request_prompt_tokens_count"] == 2
    assert shown["flare_request_prompt_tokens_sum"] == sum(len(s.prompt_tokens) for s in prompts)
    assert shown["flare_http_preparation_seconds_count"] == 2
    assert shown["flare_http_preparing"] == shown["flare_http_preparation_queue"] == 0
    assert shown["flare_http_permits"] == 0


@pytest.mark.clause("OBS-6")
def test_nothing_of_a_client_is_shown() -> None:
    secret = "whispered"
    with running_server(says("whispered answer"), options=VLLM) as server:
        http = server.http
        before = values(server)
        for number in range(20):
            name = f"{secret}{number}"
            headers = {"x-request-id": f"{name}-id", "x-forwarded-for": name, "user-agent": name}
            http.get(f"/{name}", headers=headers)
            http.get(f"/v1/models/{name}")
            http.get(f"/v1/models/{name}/%22%7D%20flare_ready%201%0A{name}")
            http.get(f"/metrics?{name}=1")
            http.request(name.upper(), "/metrics")
            http.request("DELETE", "/v1/chat/completions", headers=headers)
            http.post(f"/v1/chat/completions/{name}", json=CHAT)
            http.post("/v1/chat/completions", json=CHAT | {"model": f'{name}"\n'})
            http.post("/v1/chat/completions", json=CHAT | {"user": name, name: 1})
            http.post("/v1/completions", content=f"{name}\x00".encode())
            _raw(server, b"GET /" + b"\xff\xfe" + name.encode() + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = http.post("/v1/completions", json={"model": "sample", "prompt": secret * 9})
        assert secret in answer.json()["choices"][0]["text"]
        text = http.get("/metrics").text
        after = values(server)
    assert secret not in text.lower()
    found = list(text_string_to_metric_families(text))
    assert {
        label
        for family in found
        for sample in family.samples
        if not family.name.startswith("vllm:")
        for label in sample.labels
    } <= LABELS
    routes = {s.labels["route"] for f in found for s in f.samples if "route" in s.labels}
    assert routes <= {
        *("other", "/metrics", "/v1/chat/completions", "/v1/completions"),
        "/v1/models/{model:path}",
    }
    # 200 requests of all kinds, and no more new series than routes and statuses have.
    new = after.keys() - before.keys()
    assert all(name.startswith("flare_http_responses_total{") for name in new)
    assert len(new) <= 2 * len(routes)


def _raw(server: RunningServer, data: bytes) -> None:
    """Sends what no client library would, and reads until the server has answered."""
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port or 0)) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass


@pytest.mark.clause("OBS-6")
def test_vllms_names_say_the_same() -> None:
    said = scripted_statistics()
    with running_server(says("hello"), options=VLLM) as server:
        body = {"model": "sample", "prompt": "a b c", "max_tokens": 20}
        assert server.http.post("/v1/completions", json=body).status_code == 200
        shown = values(server)
    label = '{model_name="sample"}'
    for vllm, native in (
        ("prompt_tokens_total", "prompt_tokens_total"),
        ("generation_tokens_total", "output_tokens_total"),
        ("num_preemptions_total", "preemptions_total"),
        ("prefix_cache_queries_total", "prefix_queried_tokens_total"),
        ("prefix_cache_hits_total", "prefix_reused_tokens_total"),
        ("num_requests_running", "requests_running"),
        ("num_requests_waiting", "requests_waiting"),
    ):
        assert shown[f"vllm:{vllm}{label}"] == shown[f"flare_{native}"]
    for vllm, native in (
        ("time_to_first_token_seconds", "request_first_token_seconds"),
        ("inter_token_latency_seconds", "inter_token_seconds"),
        ("time_per_output_token_seconds", "inter_token_seconds"),
        ("e2e_request_latency_seconds", "request_end_to_end_seconds"),
        ("request_queue_time_seconds", "request_queue_seconds"),
        ("request_prefill_time_seconds", "request_prefill_seconds"),
        ("request_decode_time_seconds", "request_decode_seconds"),
        ("request_prompt_tokens", "request_prompt_tokens"),
        ("request_generation_tokens", "request_output_tokens"),
        ("request_max_num_generation_tokens", "request_output_limit_tokens"),
    ):
        assert shown[f"vllm:{vllm}_count{label}"] == shown[f"flare_{native}_count"] > 0
        assert shown[f"vllm:{vllm}_sum{label}"] == shown[f"flare_{native}_sum"] > 0
        infinite = f'vllm:{vllm}_bucket{{model_name="sample",le="+Inf"}}'
        assert shown[infinite] == shown[f"flare_{native}_count"]
    assert shown[f"vllm:kv_cache_usage_perc{label}"] == said.gauges["pages_used"] / 24
    ends = said.finished
    for reason, value in (
        ("stop", ends["eos"] + ends["stop"]),
        ("length", ends["limit"]),
        ("abort", ends["cancelled"]),
        ("error", ends["failed"] + ends["grammar"]),
    ):
        name = f'vllm:request_success_total{{model_name="sample",finished_reason="{reason}"}}'
        assert shown[name] == value


def test_vllms_names_are_asked_for() -> None:
    with running_server(says("hello")) as server:
        assert not [name for name in values(server) if name.startswith("vllm:")]


def test_several_processes_are_shown_as_one() -> None:
    parts = [HttpMetrics() for _ in range(3)]
    for number, part in enumerate(parts, start=1):
        part.responses[("/ready", 200)] += number
        part.disconnects += 10 * number
        watch = part.watch(_submit(), 5.0)
        watch.arrived_at(TokensEvent(1, [1, 2], [-1.0] * 2, 2), 5.0 + number)
    whole, *others = (part.snapshot(None) for part in parts)
    for other in others:
        whole = whole.merge(other)
    whole = msgspec.structs.replace(whole, usage=ProcessUsage(3, 4.0))
    lines = render(http_families(whole)).decode().splitlines()
    assert "flare_http_processes 3" in lines
    assert 'flare_http_responses_total{route="/ready",status="200"} 6' in lines
    assert "flare_http_disconnects_total 60" in lines
    assert "flare_request_first_token_seconds_count 3" in lines
    assert "flare_request_first_token_seconds_sum 6.0" in lines
    assert "flare_inter_token_seconds_count 3" in lines
    assert "flare_request_output_tokens_sum 6.0" in lines


def _submit() -> Submit:
    return Submit(1, [7] * 5, 9, None, [])  # type: ignore[arg-type]


def test_values_and_labels_survive_the_text() -> None:
    hostile = 'a"b\\c\nd'
    counts = HistogramCounts((0.005, 1.0, float(1 << 20)), (1, 0, 2, 4), 0.1 + 0.2)
    text = render(
        [
            gauges("one", hostile, [({"x": hostile}, 0.1), ({"x": "big"}, 1e300)]),
            histogram("two", "Two.", counts, {"y": "z"}),
        ]
    ).decode()
    one, two = text_string_to_metric_families(text)
    assert one.documentation == hostile
    assert [(s.labels, s.value) for s in one.samples] == [
        ({"x": hostile}, 0.1),
        ({"x": "big"}, 1e300),
    ]
    assert [(s.name, s.labels.get("le"), s.value) for s in two.samples] == [
        ("two_bucket", "0.005", 1),
        ("two_bucket", "1.0", 1),
        ("two_bucket", "1048576.0", 3),
        ("two_bucket", "+Inf", 7),
        ("two_sum", None, 0.1 + 0.2),
        ("two_count", None, 7),
    ]
    assert all(sample.labels["y"] == "z" for sample in two.samples)
