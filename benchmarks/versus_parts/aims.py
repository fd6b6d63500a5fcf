"""The rows of the comparison, what is aimed at in each, and the tables that samples become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final


class Row(StrEnum):
    """What is measured."""

    DECODE_1 = "decode, 1 lane, tok/s"
    DECODE_1_BF16 = "decode, 1 lane, bf16 weights, tok/s"
    DECODE_8 = "decode, 8 lanes, tok/s"
    DECODE_32 = "decode, 32 lanes, tok/s"
    PREFILL = "prefill, 512 tokens, tok/s"
    HTTP_1 = "HTTP, 1 client, decode tok/s"
    HTTP_8 = "HTTP, 8 clients, output tok/s"
    HTTP_32 = "HTTP, 32 clients, output tok/s"
    FIRST_TOKEN = "HTTP, first token of 512, ms"
    READY = "process start to ready, s"
    SERVING_RSS = "memory serving 8 lanes, RSS, MB"
    SERVING_PSS = "memory serving 8 lanes, PSS, MB"
    DISTANCE = "cache line from cpu 0 to 1, ns"
    DISTANCE_SERVING = "the same, before and after serving, ns"


@dataclass(frozen=True)
class Aim:
    """A bound: on the ratio of our figure to the best peer's, or on our figure itself. `at_least`
    says which side is good."""

    bound: float
    of_ratio: bool
    at_least: bool

    def met(self, ours: float, best: float | None) -> bool | None:
        """Whether the figures keep it; None without a peer to compare with."""
        if self.of_ratio and best is None:
            return None
        value = ours / best if self.of_ratio and best is not None else ours
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.bound:g}{'x' if self.of_ratio else ''}"


def _faster(ratio: float) -> Aim:
    return Aim(ratio, of_ratio=True, at_least=True)


def _at_most(figure: float) -> Aim:
    return Aim(figure, of_ratio=False, at_least=False)


AIMS: Final[Mapping[Row, Aim]] = {
    Row.DECODE_1: _faster(1.7),
    Row.DECODE_1_BF16: _faster(1.25),
    Row.DECODE_8: _faster(2.0),
    Row.DECODE_32: _faster(2.0),
    Row.PREFILL: _faster(1.5),
    Row.HTTP_1: _faster(1.8),
    Row.HTTP_8: _faster(2.5),
    Row.HTTP_32: _faster(2.5),
    Row.FIRST_TOKEN: Aim(0.7, of_ratio=True, at_least=False),
    Row.READY: _at_most(0.6),
    Row.SERVING_RSS: _at_most(450),
    Row.SERVING_PSS: _at_most(450),
}

NOTHING: Final = "-"  # in a cell

# Figures of each contestant, pass by pass.
Samples = Mapping[tuple[str, Row], Sequence[float]]


@dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one figure or more."""
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        if self.least == self.most:
            return figure(self.middle)
        return f"{figure(self.middle)} ({figure(self.least)}..{figure(self.most)})"


def figure(value: float) -> str:
    """Three digits at least, no more than one after the point of a figure from 10 on."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def best_peer(samples: Samples, ours: str, row: Row) -> tuple[str, Spread] | None:
    """The peer with the best median of a row, None where no peer has one."""
    found = [
        (name, Spread.of(values))
        for (name, of), values in samples.items()
        if of is row and not name.startswith(ours) and values
    ]
    if not found:
        return None
    choose = max if AIMS[row].at_least else min
    return choose(found, key=lambda one: one[1].middle)


def our_best(samples: Samples, ours: str, row: Row) -> tuple[str, Spread] | None:
    """Our figure of a row: of the first of our contestants that has one."""
    for (name, of), values in samples.items():
        if of is row and name.startswith(ours) and values:
            return name, Spread.of(values)
    return None


def comparison(samples: Samples, ours: str) -> Iterator[list[str]]:
    """The table: a head, then each row that anyone has figures of."""
    yield ["", ours, "best peer", "its figure", "ratio", "aim", "met"]
    for row, aim in AIMS.items():
        mine, peer = our_best(samples, ours, row), best_peer(samples, ours, row)
        if mine is None and peer is None:
            continue
        cells = [str(row), str(mine[1]) if mine else NOTHING]
        cells += [peer[0], str(peer[1])] if peer else [NOTHING, NOTHING]
        met = None
        if mine is not None:
            met = aim.met(mine[1].middle, peer[1].middle if peer else None)
        ratio = f"{mine[1].middle / peer[1].middle:.2f}" if mine and peer else NOTHING
        yield [*cells, ratio, str(aim), {True: "yes", False: "no", None: NOTHING}[met]]


def everyone(samples: Samples) -> Iterator[list[str]]:
    """A second table: every contestant's figures."""
    names = list(dict.fromkeys(name for name, _ in samples))
    rows = [row for row in Row if any((name, row) in samples for name in names)]
    yield ["", *names]
    for row in rows:
        spreads = [samples.get((name, row)) for name in names]
        yield [str(row), *(str(Spread.of(values)) if values else NOTHING for values in spreads)]


def markdown(table: Iterator[list[str]]) -> str:
    """The cells as a table that documents take as it is."""
    head, *rows = table
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)
