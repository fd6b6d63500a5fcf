"""What rendering a chat template may cost, and who pays: the budget of the rendering under way.

A rendering has loop passes, characters of output, seconds, and work: about the bytes that its
operations read and make. `sandbox` and `bounded` spend here before they act, so a template can
neither loop without end nor make large values out of small ones. The budget is found through a
context variable, which template code can't name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

VALUE_LIMIT: Final = 1 << 25  # characters of a string, items of a list
INTEGER_LIMIT_BITS: Final = 1 << 16
_WORK_LIMIT: Final = 1 << 28
_NODE_LIMIT: Final = 1 << 20  # values inside a nested one, each counted as often as it is met
_ITEM_WORK: Final = 8


class BudgetExceeded(Exception):
    """Rendering ran into a limit; the text completes "rendering the chat template …"."""


class RenderBudget:
    """What one rendering may still spend."""

    def __init__(
        self,
        *,
        iterations: int = 200_000,
        output_characters: int = VALUE_LIMIT,
        seconds: float = 10.0,
        work: int = _WORK_LIMIT,
    ) -> None:
        self._iterations = self._iteration_limit = iterations
        self._output = self._output_limit = output_characters
        self._work = work
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def spend_iteration(self) -> None:
        """Counts one pass of a loop or one macro call."""
        self._iterations -= 1
        if self._iterations < 0:
            raise BudgetExceeded(f"takes more than {self._iteration_limit} loop passes")
        self.spend_work(1)

    def spend_output(self, characters: int) -> None:
        """Counts characters of output."""
        self._output -= characters
        if self._output < 0:
            raise BudgetExceeded(f"makes more than {self._output_limit} characters")

    def spend_work(self, amount: int) -> None:
        """Counts bytes, roughly, that an operation is about to read or make."""
        self._work -= amount
        if self._work < 0:
            raise BudgetExceeded("reads and makes too much text along the way")
        if time.monotonic() > self._deadline:
            raise BudgetExceeded(f"takes more than {self._seconds:g} seconds")


_current: ContextVar[RenderBudget] = ContextVar("helios_render_budget")


@contextmanager
def rendering(budget: RenderBudget) -> Iterator[None]:
    """Everything spent inside is this budget's."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


def spend_iteration() -> str:
    """Counts one pass of a loop or one macro call; returns nothing to print."""
    _current.get().spend_iteration()
    return ""


def spend_value(size: int, *, items: bool = False) -> None:
    """Allows for a value of `size` characters or items that is about to be made."""
    if size > VALUE_LIMIT:
        raise BudgetExceeded(f"makes a value larger than {VALUE_LIMIT}")
    _current.get().spend_work(size * _ITEM_WORK if items else size)


def spend_reading(*values: Any) -> None:
    """Counts the work of going through values once, not into what they hold."""
    for value in values:
        if isinstance(value, str):
            _current.get().spend_work(len(value))
        elif isinstance(value, list | tuple | dict):
            _current.get().spend_work(_ITEM_WORK * len(value))


def spend_traversal(*values: Any) -> int:
    """Counts the work of turning values into text, or of comparing them, with all that they hold;
    returns about the number of characters. A value that holds another twice counts it twice:
    that is how few operations make a huge text."""
    pending = list(values)
    characters = nodes = 0
    while pending:
        value = pending.pop()
        nodes += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, list | tuple | Mapping):
            nodes += len(value)
            if nodes > _NODE_LIMIT:
                raise BudgetExceeded(f"goes through more than {_NODE_LIMIT} values at once")
            pending.extend(value)
            if isinstance(value, Mapping):
                pending.extend(value.values())
    size = characters + _ITEM_WORK * nodes
    _current.get().spend_work(size)
    return size
