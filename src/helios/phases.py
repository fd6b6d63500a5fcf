"""How long the parts of a longer piece of work take, for those who want to make it shorter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Nanoseconds by the part's name, in the order in which parts were met; what one is met for
    several times is added up. Parts may lie within others and in other threads."""

    def __init__(self) -> None:
        self.ns: dict[str, int] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """The block is a part, even where it raises."""
        began = time.monotonic_ns()
        self.ns.setdefault(name, 0)
        try:
            yield
        finally:
            self.ns[name] += time.monotonic_ns() - began
