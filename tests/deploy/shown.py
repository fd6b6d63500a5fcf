"""What `/metrics` shows, and what dashboard and alerts ask for."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.prometheus import DEPLOY
from tests.server.scripted import OPTIONS, running_server, says

DASHBOARD = DEPLOY / "grafana-dashboard.json"
ALERTS = DEPLOY / "alerts.yml"
_PARTS = {"histogram": ("_bucket", "_sum", "_count")}
_NAME = re.compile(r"\b(?:flare_|vllm:)\w+")
# What Grafana fills in.
_VARIABLES = {"$__rate_interval": "5m", "$instance": ".*", "$model": ".*"}


class Shown(NamedTuple):
    """A metric as it is exposed."""

    kind: str
    labels: frozenset[str]


@functools.cache
def exposition(*, vllm: bool = False) -> str:
    """Everything that a server shows: ready, with a second tier, after a request."""
    options = replace(OPTIONS, vllm_metrics=vllm)
    with running_server(says("hello"), options=options) as server:
        server.lifecycle.startup_ms |= {"frontend": 50.0, "worker_load": 1500.0, "ready": 2000.0}
        body = {"model": "sample", "prompt": "hello"}
        assert server.http.post("/v1/completions", json=body).status_code == 200
        return server.http.get("/metrics").text


@functools.cache
def shown(*, vllm: bool = False) -> dict[str, Shown]:
    """Metrics by their names, counters with `_total`."""
    return {
        f.name + ("_total" if f.type == "counter" else ""): Shown(
            f.type, frozenset(label for s in f.samples for label in s.labels if label != "le")
        )
        for f in text_string_to_metric_families(exposition(vllm=vllm))
    }


def series(*, vllm: bool = False) -> set[str]:
    """The names that a query may use."""
    return {
        name + part
        for name, metric in shown(vllm=vllm).items()
        for part in _PARTS.get(metric.kind, ("",))
    }


def family_of(name: str) -> str:
    """The metric that a name in a query belongs to."""
    for part in _PARTS["histogram"]:
        if name.removesuffix(part) in shown():
            return name.removesuffix(part)
    return name


def names_in(expression: str) -> set[str]:
    """The names of our metrics in a PromQL expression."""
    return set(_NAME.findall(expression))


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    content: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return content


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    """(panel's title, PromQL) of each query, with variables filled in; then of the dashboard's
    variables."""
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], _filled_in(target["expr"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            selector = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
            assert selector is not None
            yield variable["name"], _filled_in(selector[1])


def _filled_in(expression: str) -> str:
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression
