"""Progress of a preparation on standard error. The command line gives it to `prepare`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Terminal:
    """Shows stages and notes: bars on a terminal, else a line a stage."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A step while the block runs; the function it gives takes how much of `total` is done."""
        if not self._console.is_terminal:
            with self._line(title):
                yield lambda done: None
            return
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        with bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)
            bar.update(task, total=total or 1, completed=total or 1)

    @contextmanager
    def _line(self, title: str) -> Iterator[None]:
        """The title while the stage runs, then the time that it took."""
        began = time.monotonic()
        self._console.print(f"{title} … ", end="", highlight=False)
        ending = "failed"
        try:
            yield
            ending = f"{time.monotonic() - began:.1f} s"
        finally:
            self._console.print(ending, highlight=False)

    def note(self, text: str) -> None:
        """One line."""
        self._console.print(f"note: {text}", highlight=False, soft_wrap=True)
