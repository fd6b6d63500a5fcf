"""A real Prometheus scrapes a real server, evaluates the alerts, and answers the dashboard."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.prometheus import Prometheus, program, prometheus
from tests.deploy.shown import ALERTS, dashboard_expressions
from tests.server.real import ServerProcess, server_process

_CONFIG = """
global:
  scrape_interval: 200ms
  evaluation_interval: 200ms
rule_files:
  - alerts.yml
scrape_configs:
  - job_name: helios
    static_configs:
      - targets: ["{target}"]
"""


@pytest.fixture(scope="module")
def server(core_folder: Path) -> Iterator[ServerProcess]:
    """A server of its own, which has answered three requests and refused one."""
    program("prometheus")  # skips before a server is started
    with server_process(core_folder, "--threads", "1", "--vllm-metrics") as running:
        body = {"model": "tiny", "prompt": "what is counted", "max_tokens": 8, "temperature": 0}
        for stream in (False, True, False):
            answer = running.http.post("/v1/completions", json=body | {"stream": stream})
            assert answer.status_code == 200
        assert running.http.post("/v1/completions", json={"model": "other"}).status_code == 400
        yield running


@pytest.fixture(scope="module")
def scraping(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes it and knows the alerts."""
    folder = tmp_path_factory.mktemp("prometheus")
    shutil.copy(ALERTS, folder / "alerts.yml")
    target = httpx.URL(server.url).netloc.decode()
    with prometheus(_CONFIG.format(target=target), folder) as running:
        finished = 'flare_requests_finished_total{job="helios"}'
        running.query_until(f"sum({finished})", lambda found: [v for _, v in found] == [3])
        yield running


@pytest.mark.clause("OBS-6")
def test_every_series_is_stored(server: ServerProcess, scraping: Prometheus) -> None:
    text = server.http.get("/metrics").text
    exposed = {s.name for f in text_string_to_metric_families(text) for s in f.samples}
    assert len(exposed) > 100
    assert exposed <= set(scraping.api("label/__name__/values"))
    (target,) = scraping.api("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    metadata = scraping.api("targets/metadata", limit="1000")
    kinds = {one["metric"]: (one["type"], one["help"]) for one in metadata}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        assert kinds[name] == (family.type, family.documentation)


@pytest.mark.clause("OBS-6")
def test_the_numbers_are_the_servers(server: ServerProcess, scraping: Prometheus) -> None:
    def value(expression: str) -> float:
        ((_, number),) = scraping.query(expression)
        return number

    assert value("sum(flare_requests_finished_total)") == 3
    assert value('sum(flare_http_responses_total{route="/v1/completions",status="400"})') == 1
    assert value("flare_request_first_token_seconds_count") == 3
    assert value("sum(flare_output_tokens_total)") == value("sum(flare_request_output_tokens_sum)")
    quantile = value("histogram_quantile(0.9, flare_request_end_to_end_seconds_bucket)")
    assert math.isfinite(quantile)
    assert quantile > 0
    assert value('vllm:generation_tokens_total{model_name="tiny"}') == value(
        "flare_output_tokens_total"
    )


def test_every_panel_is_answered(scraping: Prometheus) -> None:
    """Prometheus takes each query, and once it has scraped twice each has an answer; but there is
    no second tier here."""

    def silent() -> set[str]:
        return {title for title, query in dashboard_expressions() if not scraping.query(query)}

    second_tier = {"Traffic", "Contents", "Size", "Trouble", "Entries"}
    assert scraping.until(silent, lambda titles: titles <= second_tier) == second_tier


def test_every_alert_is_evaluated_and_silent(scraping: Prometheus) -> None:
    def rules() -> list[dict[str, str]]:
        (group,) = scraping.api("rules")["groups"]
        return list(group["rules"])

    found = scraping.until(rules, lambda rules: all(r["health"] != "unknown" for r in rules))
    assert {(rule["health"], rule["state"]) for rule in found} == {("ok", "inactive")}
