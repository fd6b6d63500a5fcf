"""The Prometheus text format: families of samples to bytes. What is shown is in `*_families`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from helios.dataclass import dataclass
from helios.worker.histograms import HistogramCounts

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples: (name suffix, labels, value)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[tuple[str, Labels, float]]


def counter(name: str, text: str, value: float) -> Family:
    """A counter without labels."""
    return counters(name, text, [({}, value)])


def counters(name: str, text: str, values: Iterable[tuple[Labels, float]]) -> Family:
    """A counter by labels."""
    return Family(name, "counter", text, [("", labels, value) for labels, value in values])


def gauge(name: str, text: str, value: float) -> Family:
    """A gauge without labels."""
    return gauges(name, text, [({}, value)])


def gauges(name: str, text: str, values: Iterable[tuple[Labels, float]]) -> Family:
    """A gauge by labels."""
    return Family(name, "gauge", text, [("", labels, value) for labels, value in values])


def histogram(
    name: str, text: str, counts: HistogramCounts, labels: Labels | None = None
) -> Family:
    """A histogram: cumulative buckets, sum and count."""
    labels = labels or {}
    samples: list[tuple[str, Labels, float]] = []
    total = 0
    for bound, count in zip((*counts.bounds, math.inf), counts.counts, strict=True):
        total += count
        samples.append(("_bucket", {**labels, "le": _number(bound)}, total))
    samples += [("_sum", labels, counts.sum), ("_count", labels, total)]
    return Family(name, "histogram", text, samples)


def render(families: Iterable[Family]) -> bytes:
    """The families as one exposition."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for suffix, labels, value in family.samples:
            text = ",".join(f'{k}="{_escaped(v, quote=True)}"' for k, v in labels.items())
            braces = f"{{{text}}}" if text else ""
            lines.append(f"{family.name}{suffix}{braces} {_number(value)}")
    return ("\n".join(lines) + "\n").encode()


def _number(value: float) -> str:
    """The shortest text that reads back as the same number."""
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escaped(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text
