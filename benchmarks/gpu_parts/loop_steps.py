"""Times each step of the worker's loop by standing before its methods.

What that costs shows in the path as a whole, so a pass with it is apart from those that count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

# Where steps are found from the worker on: the attributes' path and the method. A method within
# another one counts for itself, and in the other one too.
_STEPS = (
    ("look ahead, while it runs", "", "_look_ahead"),
    ("wait", "_runtime", "wait"),
    ("read", "_runtime", "read"),
    ("  of it, the device's stamps", "_runtime._runtime._device", "timing"),
    ("complete", "scheduler", "complete"),
    ("stops, messages", "_requests", "messages"),
    ("grammars", "_requests", "advance"),
    ("send", "_channel", "send"),
    ("receive", "_channel", "receive"),
    ("release", "_requests", "release"),
    ("feed", "_requests", "feed"),
    ("plan", "scheduler", "plan"),
    ("submit", "_runtime", "submit"),
    ("  of it, packing", "_runtime._runtime._packer", "pack"),
    ("  of it, the device's", "_runtime._runtime._device", "submit"),
    ("  of that, the driver's", "_runtime._runtime._device", "_launch"),
    ("begin", "scheduler", "begin"),
    ("turn, less wait", "", "_turn"),
)


class LoopSteps:
    """Stands before the methods from now on, as long as the worker runs."""

    def __init__(self, worker: Any) -> None:
        self._spans: dict[str, list[int]] = {}
        for name, path, method in _STEPS:
            owner = worker
            for attribute in filter(None, path.split(".")):
                owner = getattr(owner, attribute, None)
            original = getattr(owner, method, None)
            if original is not None:
                spans = self._spans[name] = []
                setattr(owner, method, partial(_timed, original, spans))

    def take_us(self) -> dict[str, float]:
        """Medians by step since the last call."""
        found = {name: median(spans) / 1e3 for name, spans in self._spans.items() if spans}
        if found:
            found["turn, less wait"] = max(found["turn, less wait"] - found["wait"], 0.0)
        for spans in self._spans.values():
            spans.clear()
        return found


def _timed(original: Callable[..., Any], spans: list[int], *arguments: Any, **named: Any) -> Any:
    began = time.monotonic_ns()
    try:
        return original(*arguments, **named)
    finally:
        spans.append(time.monotonic_ns() - began)
