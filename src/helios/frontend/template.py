"""Renders a core's chat template, as Hugging Face renders it.

The environment is Jinja's immutable sandbox with the settings, filters and globals that templates
are written for. A template comes with the core, but what it does depends on a client's messages:
`budget` bounds its loops, its time and its output. It knows neither tokens nor markers; `prepare`
calls it with messages that the marker guard has shielded.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

import jinja2
import jinja2.nodes
import jinja2.sandbox
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from helios.errors import CoreError, RequestError
from helios.frontend.budget import (
    BUDGET_VARIABLE,
    BudgetExceeded,
    RenderBudget,
    count_iterations,
    guard_growth,
)


class _TemplateComplaint(Exception):
    """The template itself refuses the messages, through `raise_exception`."""


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks assistant text for training; here its body
    is rendered like any other text."""

    tags: Final = {"generation"}  # type: ignore[misc]  # Jinja declares a plain class variable

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        """Replaces the block by its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox with growth and loops bounded."""

    intercepted_binops: Final = frozenset({"+", "*", "**"})  # type: ignore[misc]

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        """Runs an intercepted operator unless its result would be huge."""
        guard_growth(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree = super()._parse(source, name, filename)
        count_iterations(tree)
        return tree


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates expect it: no HTML escaping, non-ASCII kept, keys in order."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateComplaint(message)


class ChatTemplate:
    """A compiled template; `literals` are the texts that it writes by itself.

    `tokens` are the variables `bos_token`, `eos_token`, … that it may refer to; `now` tells the
    time for `strftime_now`. Rendering is safe from several threads.

    Raises CoreError when the source is no valid template.
    """

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, str],
        *,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        environment = _Environment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateSyntaxError, RecursionError, MemoryError) as error:
            raise CoreError(
                f"invalid chat template: {error}",
                where="chat template",
                remedy="Prepare the core from a checkpoint with a valid template",
            ) from error
        self._tokens = dict(tokens)
        self.literals = tuple(_literals(environment.parse(source)))

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        variables: Mapping[str, Any] | None = None,
        budget: RenderBudget | None = None,
    ) -> str:
        """The prompt text, ending where the assistant's answer starts.

        `variables` are additional template variables; they can't replace the messages. Raises
        RequestError naming `messages` when the template refuses them, fails on them or exceeds
        its budget.
        """
        budget = budget or RenderBudget()
        context = {
            **self._tokens,
            "tools": None,
            "documents": None,
            **(variables or {}),
            "messages": messages,
            "add_generation_prompt": True,
            BUDGET_VARIABLE: budget,
        }
        try:
            return "".join(_within(budget, self._template.generate(context)))
        except _TemplateComplaint as complaint:
            raise RequestError(
                f"the model's chat template refuses them: {complaint}",
                where="messages",
                remedy="Send the roles and order that this model was trained with",
            ) from None
        except BudgetExceeded as error:
            raise RequestError(
                f"rendering the chat template {error}",
                where="messages",
                remedy="Send fewer or shorter messages",
            ) from None
        except Exception as error:  # a template can fail in any way that Python can
            raise RequestError(
                f"the model's chat template fails on them ({type(error).__name__}: {error})",
                where="messages",
                remedy="Check that every message has a role and text content",
            ) from error


def _literals(tree: jinja2.nodes.Template) -> Iterator[str]:
    for data in tree.find_all(jinja2.nodes.TemplateData):
        yield data.data
    for constant in tree.find_all(jinja2.nodes.Const):
        if isinstance(constant.value, str):
            yield constant.value


def _within(budget: RenderBudget, pieces: Iterator[str]) -> Iterator[str]:
    for piece in pieces:
        budget.spend_output(len(piece))
        yield piece
