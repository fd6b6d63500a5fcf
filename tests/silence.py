"""A preparation's progress that nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Silent:
    """Reports to no one."""

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Swallows the stage's progress."""
        yield lambda done: None

    def note(self, text: str) -> None:
        """Swallows a note."""
