"""Renders a core's chat template, as Hugging Face renders it.

A template comes with the core or a checkpoint and is third-party data; what it does depends on a
client's messages, too. `sandbox` is the environment that it runs in, `budget` bounds its loops, its
time, its work and its output. It knows neither tokens nor markers, but for each character of a
prompt whether the template wrote it (`origins`). `prompts` calls it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import jinja2
import jinja2.meta
import jinja2.nodes

from helios.errors import CoreError, RequestError
from helios.frontend.budget import BudgetExceeded, RenderBudget, rendering
from helios.frontend.origins import Origin, by, joined, plain
from helios.frontend.sandbox import BoundedEnvironment

_SOURCE_LIMIT: Final = 1 << 20  # characters
_TIME_FORMAT_LIMIT: Final = 256  # characters


class _TemplateComplaint(Exception):
    """The template itself refuses the messages, through `raise_exception`."""


def _invalid(why: str) -> CoreError:
    return CoreError(
        f"invalid chat template: {why}",
        where="chat template",
        remedy="Prepare the core from a checkpoint with a valid template",
    )


def _formatted(moment: datetime.datetime, form: str) -> str:
    if len(form) > _TIME_FORMAT_LIMIT:
        raise BudgetExceeded(f"formats a time with more than {_TIME_FORMAT_LIMIT} characters")
    return moment.strftime(form)


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateComplaint(plain(str(message)))


class ChatTemplate:
    """A compiled template; `literals` are the texts that it writes by itself, `reads_parts` says
    that it goes through a message's content part by part, `reads_tools` that it shows tools.

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
        if len(source) > _SOURCE_LIMIT:
            raise _invalid(f"it has {len(source)} characters, over the limit of {_SOURCE_LIMIT}")
        environment = BoundedEnvironment()
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: _formatted(now(), form)
        try:
            # Jinja evaluates constant expressions while it compiles.
            with rendering(RenderBudget()):
                tree = environment.parse_as_written(source)
                self.literals = tuple(_literals(tree))
                self.reads_parts = _loops_over_content(tree)
                # Finding a variable means compiling; most templates don't even have the word.
                self.reads_tools = (
                    "tools" in source and "tools" in jinja2.meta.find_undeclared_variables(tree)
                )
                self._template = environment.from_string(environment.bounded(tree))
        except Exception as error:  # Python's compiler has limits of its own
            raise _invalid(str(error).rstrip(".")) from error
        self._tokens = {name: by(Origin.TEMPLATE, text) for name, text in tokens.items()}

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The text of `written` alone."""
        return plain(self.written(messages, **options))

    def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        variables: Mapping[str, Any] | None = None,
        tools: list[Any] | None = None,
        documents: list[Any] | None = None,
        generation_prompt: bool = True,
        budget: RenderBudget | None = None,
    ) -> str:
        """The prompt text, which knows its origins; with `generation_prompt` it ends where the
        assistant's answer starts. Plain strings in messages and variables are the client's.

        `variables` are additional template variables; they can't replace the others. Raises
        RequestError naming `messages` when the template refuses them, fails on them or exceeds
        its budget.
        """
        budget = budget or RenderBudget()
        context = {
            **self._tokens,
            **(variables or {}),
            "tools": tools,
            "documents": documents,
            "messages": messages,
            "add_generation_prompt": generation_prompt,
        }
        try:
            with rendering(budget):
                return joined("", _within(budget, self._template.generate(context)))
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


def _loops_over_content(tree: jinja2.nodes.Template) -> bool:
    """Whether a loop goes over something's content, by that name, by a variable set to it or by
    a parameter of a macro that is called with it."""
    names = {
        assign.target.name
        for assign in tree.find_all(jinja2.nodes.Assign)
        if isinstance(assign.target, jinja2.nodes.Name) and _is_content(assign.node)
    }
    macros = {macro.name: macro for macro in tree.find_all(jinja2.nodes.Macro)}
    for call in tree.find_all(jinja2.nodes.Call):
        if isinstance(call.node, jinja2.nodes.Name) and call.node.name in macros:
            given = zip(macros[call.node.name].args, call.args, strict=False)
            names |= {parameter.name for parameter, value in given if _is_content(value)}
    return any(
        _is_content(loop.iter)
        or (isinstance(loop.iter, jinja2.nodes.Name) and loop.iter.name in names)
        for loop in tree.find_all(jinja2.nodes.For)
    )


def _is_content(node: jinja2.nodes.Node) -> bool:
    if isinstance(node, jinja2.nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, jinja2.nodes.Getitem):
        return isinstance(node.arg, jinja2.nodes.Const) and node.arg.value == "content"
    return False


def _within(budget: RenderBudget, pieces: Iterator[str]) -> Iterator[str]:
    for piece in pieces:
        budget.spend_output(len(piece))
        yield piece
