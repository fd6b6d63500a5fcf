"""Where a preparation reports to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Progress(Protocol):
    """What the command line shows and tests ignore."""

    def stage(
        self, title: str, total: int | None = None
    ) -> AbstractContextManager[Callable[[int], None]]:
        """A step that begins; the function it gives takes how much of `total` is done."""

    def note(self, text: str) -> None:
        """Something the user should know."""
