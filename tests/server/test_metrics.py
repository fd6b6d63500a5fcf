"""`/metrics` of the whole system: what requests left there, and what they didn't."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.real import ServerProcess

LIFECYCLE = (
    "requests_submitted_total",
    "requests_rejected_total",
    "requests_running",
    "requests_waiting",
    "prefix_queries_total",
    "prefix_hits_total",
    "prefix_queried_tokens_total",
    "prefix_reused_tokens_total",
    "pages_published_total",
    "pages_evicted_total",
    "snapshots_published_total",
    "snapshots_evicted_total",
    "slots_used",
    "slots_free",
    "pages_used",
    "pages_cached",
    "pages_free",
    "snapshots_used",
    "snapshots_cached",
    "snapshots_free",
    "request_slots",
    "cache_pages",
    "cache_bytes",
    "snapshot_rows",
    "preemptions_total",
    "preemptions_by_snapshot_total",
    "integrity_violations_total",
    "round_device_seconds_total",
    "round_predicted_seconds_total",
    "round_prediction_error_seconds_total",
)
LABELS = {"core", "kernel_path", "le", "operation", "reason", "route", "status", "version"}


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
    assert grew("flare_rounds", operation="prefill") >= 1
    assert grew("flare_launches", operation="prefill") > grew("flare_rounds", operation="prefill")


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

    assert {f"flare_{name}" for name in LIFECYCLE} <= after.keys()
    assert grew("requests_submitted_total") == grew("prefix_queries_total") == 2
    assert grew("prefix_hits_total") == 1
    usage = answer["usage"]
    assert grew("prefix_reused_tokens_total") == usage["prompt_tokens_details"]["cached_tokens"] > 9
    assert grew("prefix_queried_tokens_total") == 2 * (usage["prompt_tokens"] - 1)
    assert grew("pages_published_total") > 0
    assert grew("snapshots_published_total") > 0
    assert grew("round_device_seconds_total") > 0
    assert grew('launches_total{operation="prefill"}') > 0
    assert grew('requests_finished_total{reason="limit"}') == 2
    text = real_server.http.get("/metrics").text
    families = list(text_string_to_metric_families(text))
    assert {label for f in families for s in f.samples for label in s.labels} == LABELS
    assert "whispered" not in text
    assert "secretive" not in text
