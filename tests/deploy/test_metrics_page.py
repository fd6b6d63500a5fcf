"""docs/metrics.md says of each metric what it is, and of none that there isn't."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from helios.worker.request_times import RequestTimes
from tests.deploy.shown import exposition, shown

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def _rows(*columns: str) -> list[dict[str, str]]:
    """The rows of the table with these columns, each by column."""
    lines = PAGE.read_text().splitlines()
    start = lines.index(f"| {' | '.join(columns)} |")
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip().removesuffix("|")[1:].split("|")]
        rows.append(dict(zip(columns, cells, strict=True)))
    return rows


METRICS = _rows("metric", "kind", "labels", "meaning", "buckets")
BUCKETS = _rows("buckets", "upper ends", "chosen")
VLLM = _rows("metric", "kind", "is", "where vLLM differs")


def _quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.clause("OBS-6")
def test_every_metric_is_described_as_it_is() -> None:
    described = {
        _quoted(row["metric"])[0]: (row["kind"], frozenset(_quoted(row["labels"])))
        for row in METRICS
    }
    assert len(described) == len(METRICS)
    assert described == {name: tuple(metric) for name, metric in shown().items()}
    assert all(row["meaning"] for row in METRICS)


def test_buckets_are_those_that_are_shown() -> None:
    named = {row["buckets"]: row["upper ends"] for row in BUCKETS}
    families = {f.name: f for f in text_string_to_metric_families(exposition())}
    scripted = {"flare_request_queue_seconds", "flare_request_prefill_seconds"}
    for row in METRICS:
        (name,) = _quoted(row["metric"])
        assert bool(row["buckets"]) == (row["kind"] == "histogram")
        if row["kind"] != "histogram":
            continue
        if row["buckets"] == "lengths":
            described = [float(1 << power) for power in range(21)]
        else:
            described = [float(bound) for bound in named[row["buckets"]].split(", ")]
        samples = families[name].samples
        bounds = [float(s.labels["le"]) for s in samples if s.name.endswith("_bucket")]
        if name not in scripted:
            assert bounds == [*described, float("inf")]


def test_the_workers_buckets_too() -> None:
    named = {row["buckets"]: row["upper ends"] for row in BUCKETS}
    for name, counts in RequestTimes(lambda: 0).histograms().items():
        (row,) = (row for row in METRICS if row["metric"] == f"`flare_{name}`")
        described = tuple(float(bound) for bound in named[row["buckets"]].split(", "))
        assert counts.bounds == described


def test_vllms_names_are_described() -> None:
    known = shown(vllm=True)
    described = {_quoted(row["metric"])[0]: row["kind"] for row in VLLM}
    assert described == {
        name: metric.kind for name, metric in known.items() if name.startswith("vllm:")
    }
    for row in VLLM:
        assert set(re.findall(r"flare_\w+", row["is"])) <= known.keys()
