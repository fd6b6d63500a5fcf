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
from tests.server.certificates import self_signed
from tests.server.real import ServerProcess, server_process

# A scrape may take as long as the interval, also on a machine that is busy with other tests.
_CONFIG = """
global:
  scrape_interval: 1s
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

    def health() -> tuple[str, str]:
        (target,) = scraping.api("targets")["activeTargets"]
        return target["health"], target["lastError"]

    scraping.until(health, lambda found: found == ("up", ""))
    metadata = scraping.api("targets/metadata", limit="1000")
    kinds = {one["metric"]: (one["type"], one["help"]) for one in metadata}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        assert kinds[name] == (family.type, family.documentation)


@pytest.mark.clause("OBS-6")
def test_the_numbers_are_the_servers(server: ServerProcess, scraping: Prometheus) -> None:
    def value(expression: str) -> float:
        ((_, number),) = scraping.query_until(expression, bool)
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


_GUARDED = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: helios
    scheme: https
    tls_config: {{ca_file: "{ca}"}}
    authorization: {{credentials_file: "{key}"}}
    static_configs:
      - targets: ["{target}"]
  - job_name: without_key
    scheme: https
    tls_config: {{ca_file: "{ca}"}}
    static_configs:
      - targets: ["{target}"]
  - job_name: without_authority
    scheme: https
    authorization: {{credentials_file: "{key}"}}
    static_configs:
      - targets: ["{target}"]
"""


def test_a_guarded_server_is_scraped_by_those_who_may(core_folder: Path, tmp_path: Path) -> None:
    program("prometheus")
    files = self_signed(tmp_path)
    key = tmp_path / "api.key"
    key.write_text("a-key-for-scrapes\n")
    options = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    with server_process(core_folder, "--threads", "1", *options, "--api-key-file", str(key)) as one:
        target = httpx.URL(one.url).netloc.decode()
        config = _GUARDED.format(ca=files.certificate, key=key, target=target)
        with prometheus(config, tmp_path) as scraping:
            up = {"helios": 1, "without_key": 0, "without_authority": 0}
            scraping.query_until("up", lambda found: {one["job"]: v for one, v in found} == up)
            ready = scraping.query_until("flare_ready", bool)
            assert [(labels["job"], value) for labels, value in ready] == [("helios", 1)]
            targets = scraping.api("targets")["activeTargets"]
            errors = {one["labels"]["job"]: one["lastError"] for one in targets}
    assert "401" in errors["without_key"]
    assert "certificate" in errors["without_authority"]
