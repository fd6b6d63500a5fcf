"""The Grafana dashboard asks for metrics that there are, in queries that parse, for all of them."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from tests.deploy.prometheus import promtool
from tests.deploy.shown import dashboard, dashboard_expressions, family_of, names_in, series, shown


@pytest.mark.clause("OBS-6")
def test_every_name_is_exported() -> None:
    used = {name for _, expression in dashboard_expressions() for name in names_in(expression)}
    assert used
    assert used <= series()


@pytest.mark.clause("OBS-6")
def test_every_metric_has_a_panel() -> None:
    used = {name for _, expression in dashboard_expressions() for name in names_in(expression)}
    assert {family_of(name) for name in used} == shown().keys()


def test_every_query_parses(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": expression}
        for number, (_, expression) in enumerate(dashboard_expressions())
    ]
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # also YAML
    checked = promtool("check", "rules", path)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


def test_labels_in_queries_are_the_metrics_own() -> None:
    """Sums by a label that isn't there would be one line where many were meant."""
    known = {label for metric in shown().values() for label in metric.labels} | {"instance", "le"}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            legend = target["legendFormat"]
            used = [part.split("}}")[0] for part in legend.split("{{")[1:]]
            assert set(used) <= known
            assert all(label in target["expr"] for label in used), panel["title"]


def test_panels_are_laid_out() -> None:
    board = dashboard()
    assert board["schemaVersion"] >= 36
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            refs = [target["refId"] for target in panel["targets"]]
            assert len(refs) == len(set(refs)) > 0
    for one, other in combinations((panel["gridPos"] for panel in board["panels"]), 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )


def test_every_panel_is_of_the_chosen_instances() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            selectors = target["expr"].count('instance=~"$instance"')
            assert selectors == len(names_in_with_repeats(target["expr"]))


def names_in_with_repeats(expression: str) -> list[str]:
    return [part for part in expression.replace("(", " ").split() if part.startswith("flare_")]
