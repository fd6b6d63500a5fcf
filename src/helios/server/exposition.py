"""The Prometheus text format: families of samples to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples: (name suffix, labels, value)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[tuple[str, Mapping[str, str], float]]


class Histogram:
    """Counts observations in buckets; `bounds` are the buckets' upper ends, ascending."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one observation."""
        index = next((i for i, bound in enumerate(self._bounds) if value <= bound), -1)
        self._counts[index] += 1
        self._sum += value

    def samples(self) -> list[tuple[str, Mapping[str, str], float]]:
        """Cumulative buckets, count and sum."""
        result: list[tuple[str, Mapping[str, str], float]] = []
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            label = "+Inf" if bound == float("inf") else f"{bound:g}"
            result.append(("_bucket", {"le": label}, total))
        return [*result, ("_count", {}, total), ("_sum", {}, self._sum)]


def render(families: Iterable[Family]) -> bytes:
    """The families as one exposition."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escape(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for suffix, labels, value in family.samples:
            text = ",".join(f'{k}="{_escape(v, quote=True)}"' for k, v in labels.items())
            braces = f"{{{text}}}" if text else ""
            lines.append(f"{family.name}{suffix}{braces} {value:.17g}")
    return ("\n".join(lines) + "\n").encode()


def _escape(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text
