"""What vLLM 0.26 took on the same kind of machine, and what we aim at: milliseconds unless said.

Measured with random bf16 weights on one H200: greedy, 64 tokens in and 256 out for steps, one fresh
prompt for prefill, process start to ready (its second start) for starting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

LANES: Final = (1, 8, 32, 128)
PROMPTS: Final = (512, 2_048, 8_192)


@dataclass(frozen=True)
class Bar:
    """A peer's figure and the aim."""

    peer: float
    aim: float


@dataclass(frozen=True)
class Bars:
    """Those of one model; steps by lanes, prefill by tokens, start in seconds."""

    steps: Mapping[int, Bar]
    prefill: Mapping[int, Bar]
    start_s: Bar


def _bars(steps: str, prefill: str, start: str) -> Bars:
    """Parses `peer/aim` for each number of lanes and tokens."""

    def bar(text: str) -> Bar:
        peer, aim = map(float, text.split("/"))
        return Bar(peer, aim)

    return Bars(
        MappingProxyType(dict(zip(LANES, map(bar, steps.split()), strict=True))),
        MappingProxyType(dict(zip(PROMPTS, map(bar, prefill.split()), strict=True))),
        bar(start),
    )


# By what a core's served name contains.
BARS: Final = MappingProxyType(
    {
        "135m": _bars("1.93/0.35 2.57/0.45 3.03/0.60 4.64/1.2", "14/2 30/4 31/12", "53/1.5"),
        "0.6b": _bars("1.94/0.60 2.37/0.70 2.80/0.90 4.74/1.8", "16/4 29/9 38/34", "61/2"),
        "8b": _bars("4.93/4.0 5.02/4.1 5.45/4.5 7.23/6.2", "17/16 53/53 220/220", "52/5"),
    }
)
# Over HTTP, 0.6B: milliseconds between one client's tokens, output tokens a second of 128 clients.
HTTP_GAP_MS: Final = Bar(2.75, 1.0)
HTTP_RATE: Final = Bar(21_637, 40_000)


def bars_of(served: str) -> Bars | None:
    """Those of a model that was measured, by its served name."""
    return next((bars for name, bars in BARS.items() if name in served.lower()), None)
