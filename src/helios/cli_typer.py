"""Commands as Typer takes them: the marks of `command_line` turned into its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Signature, signature
from typing import Annotated, Any, get_args, get_origin

import typer

from helios.command_line import Argument, Option, parameter_hints


def for_typer(
    command: Callable[..., Any], then: Callable[[Any], None] | None = None
) -> Callable[..., None]:
    """A command that does the same, and `then` something with the result, and whose annotations
    have Typer's marks."""
    annotations = {name: _typers(hint) for name, hint in parameter_hints(command).items()}

    @wraps(command)
    def run(**given: Any) -> None:
        result = command(**given)
        if then is not None:
            then(result)

    run.__annotations__ = annotations
    parameters = signature(command).parameters.values()
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [one.replace(annotation=annotations[one.name]) for one in parameters]
    )
    return run


def _typers(hint: Any) -> Any:
    if get_origin(hint) is not Annotated:
        return hint
    kind, mark = get_args(hint)
    if isinstance(mark, Argument):
        mark = typer.Argument(help=mark.help, show_default=False)
    elif isinstance(mark, Option):
        mark = typer.Option(
            *([] if mark.name is None else [mark.name]),
            help=mark.help,
            min=mark.minimum,
            max=mark.maximum,
            rich_help_panel=mark.panel,
        )
    return Annotated[kind, mark]
