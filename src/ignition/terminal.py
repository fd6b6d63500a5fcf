"""Progress of a preparation on the terminal. The command line gives it to `prepare`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Terminal:
    """Shows stages as bars and notes as lines, on standard error."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A bar while the block runs; the function it gives takes how much of `total` is done."""
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

    def note(self, text: str) -> None:
        """One line."""
        self._console.print(f"note: {text}", highlight=False)
