"""Bounds on what rendering a chat template may cost.

Jinja's sandbox keeps a template away from the process but not from its time and memory. Here
every loop pass and macro call is counted through a statement put into the compiled template, and
the operators that can make large values out of small ones look before they act. `template` is the
only caller.
"""

from __future__ import annotations

import time
from typing import Any, Final

import jinja2.nodes

BUDGET_VARIABLE: Final = "helios_render_budget"

_VALUE_LIMIT: Final = 1 << 25  # characters, list items; bits of integers


class BudgetExceeded(Exception):
    """Rendering ran into a limit; the text completes "rendering the chat template …"."""


class RenderBudget:
    """What one rendering may still spend: loop passes, characters of output, seconds."""

    def __init__(
        self,
        *,
        iterations: int = 200_000,
        output_characters: int = _VALUE_LIMIT,
        seconds: float = 10.0,
    ) -> None:
        self._iterations = self._iteration_limit = iterations
        self._output = self._output_limit = output_characters
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def spend_iteration(self) -> str:
        """Counts one pass of a loop or one macro call; returns nothing to print."""
        self._iterations -= 1
        if self._iterations < 0:
            raise BudgetExceeded(f"takes more than {self._iteration_limit} loop passes")
        if time.monotonic() > self._deadline:
            raise BudgetExceeded(f"takes more than {self._seconds:g} seconds")
        return ""

    def spend_output(self, characters: int) -> None:
        """Counts characters of output."""
        self._output -= characters
        if self._output < 0:
            raise BudgetExceeded(f"makes more than {self._output_limit} characters")


def count_iterations(tree: jinja2.nodes.Template) -> None:
    """Puts a call of `spend_iteration` at the head of every loop and macro body."""
    environment = tree.environment
    assert environment is not None
    for node in tree.find_all((jinja2.nodes.For, jinja2.nodes.Macro, jinja2.nodes.CallBlock)):
        assert isinstance(node, jinja2.nodes.For | jinja2.nodes.Macro | jinja2.nodes.CallBlock)
        budget = jinja2.nodes.Name(BUDGET_VARIABLE, "load", lineno=node.lineno)
        method = jinja2.nodes.Getattr(budget, "spend_iteration", "load", lineno=node.lineno)
        call = jinja2.nodes.Call(method, [], [], None, None, lineno=node.lineno)
        statement = jinja2.nodes.ExprStmt(call, lineno=node.lineno)
        node.body.insert(0, statement.set_environment(environment))


def guard_growth(operator: str, left: Any, right: Any) -> None:
    """Raises BudgetExceeded if `left operator right` would make a huge value."""
    if operator == "**":
        grows = isinstance(left, int) and isinstance(right, int)
        size = left.bit_length() * right if grows else 0
    elif operator == "*":
        size = max(_repeated(left, right), _repeated(right, left))
    else:
        size = _length(left) + _length(right)
    if size > _VALUE_LIMIT:
        raise BudgetExceeded(f"makes a value larger than {_VALUE_LIMIT}")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _repeated(value: Any, count: Any) -> int:
    if not isinstance(count, int):
        return 0
    if isinstance(value, int):
        return value.bit_length() + count.bit_length()
    return _length(value) * count
