"""Command lines without a library: how a command declares its options, and a reader for plain uses.

Typer reads every command line, knows help and says what is wrong; but loading and running it takes
longer than half of all else that passes before a server's model starts to load. So `serve`'s
options are declared with the marks below, which `cli_typer` turns into Typer's, and `cli` first
asks `read`: it takes command lines in which nothing is unusual and leaves all others to Typer.
Both read the same declarations; `tests/server/test_command_line.py` holds them against each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from helios.dataclass import dataclass

Result = TypeVar("Result")


@dataclass(frozen=True)
class Argument:
    """Marks a parameter that is given by its place."""

    help: str


@dataclass(frozen=True)
class Option:
    """Marks a parameter that is given by name: its own with hyphens unless `name` says another.
    `minimum` and `maximum` are the bounds of a number, `panel` is the heading in the help below
    which it stands."""

    help: str
    name: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    panel: str | None = None

    def spelled(self, parameter: str) -> str:
        """The option as it is written."""
        return self.name or f"--{parameter.replace('_', '-')}"


@dataclass(frozen=True)
class Group:
    """Marks a parameter that stands for the options of `of`, a function, and is given what that
    makes of them: what several commands take is declared once. See `with_groups`."""

    of: Callable[..., Any]


class _UnusualError(Exception):
    """Something that is Typer's to judge."""


# As people write them; other spellings that Python takes are unusual.
_NUMBERS: Final[dict[type, re.Pattern[str]]] = {
    int: re.compile(r"[0-9]{1,18}"),
    float: re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?"),
}


def parameter_hints(command: Callable[..., object]) -> dict[str, Any]:
    """A command's parameters with their types and marks; what it returns needn't be imported."""
    annotations = {name: hint for name, hint in command.__annotations__.items() if name != "return"}
    names = command.__globals__
    return get_type_hints(SimpleNamespace(__annotations__=annotations), names, include_extras=True)


def with_groups(command: Callable[..., Result]) -> Callable[..., Result]:
    """The command with the options of its groups in place of the parameters that stand for them;
    those are given by name alone, behind the others that have no default."""
    hints = parameter_hints(command)
    parameters: list[Parameter] = []
    groups: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}
    for one in signature(command).parameters.values():
        hint = hints[one.name]
        mark = get_args(hint)[-1] if get_origin(hint) is Annotated else None
        if not isinstance(mark, Group):
            parameters.append(one.replace(annotation=hint))
            continue
        own = parameter_hints(mark.of)
        groups[one.name] = (mark.of, tuple(own))
        for option in signature(mark.of).parameters.values():
            changed = option.replace(annotation=own[option.name], kind=Parameter.KEYWORD_ONLY)
            parameters.append(changed)

    @wraps(command)
    def run(**given: Any) -> Result:
        made = {
            name: of(**{option: given.pop(option) for option in options if option in given})
            for name, (of, options) in groups.items()
        }
        return command(**given, **made)

    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def read(command: Callable[..., object], words: Sequence[str]) -> dict[str, Any] | None:
    """The parameters that a command line gives to a command all of whose parameters are marked.
    None where it has to be read by Typer: it asks for help, or something is missing, given twice,
    unknown, out of bounds, or only spelled in an unusual way."""
    hints = parameter_hints(command)
    parameters = signature(command).parameters.values()
    required = {one.name for one in parameters if one.default is one.empty}
    try:
        given = _read(hints, words)
    except _UnusualError:
        return None
    return given if required <= given.keys() else None


def _read(hints: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The parameters that are given."""
    options: dict[str, str] = {}
    places: list[str] = []
    for parameter, hint in hints.items():
        mark = _mark(hint)
        if isinstance(mark, Option):
            options[mark.spelled(parameter)] = parameter
        else:
            places.append(parameter)
    given: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            if not places:
                raise _UnusualError
            parameter = places.pop(0)
            given[parameter] = _value(hints[parameter], word)
            continue
        name, equals, text = word.partition("=")
        if name not in options:
            raise _UnusualError
        parameter = options[name]
        if _kind(hints[parameter]) is bool:
            if equals:
                raise _UnusualError
            value: Any = True
        else:
            value = _value(hints[parameter], text if equals else next(left, ""))
        if get_origin(_kind(hints[parameter])) is list:
            given.setdefault(parameter, []).append(value)
        elif parameter in given:
            raise _UnusualError
        else:
            given[parameter] = value
    return given


def _mark(hint: Any) -> Argument | Option:
    """A parameter's mark."""
    mark = get_args(hint)[-1] if get_origin(hint) is Annotated else None
    assert isinstance(mark, Argument | Option), f"{hint} has no mark"
    return mark


def _kind(hint: Any) -> Any:
    """The type of a parameter's values, where there are any."""
    kind = get_args(hint)[0]
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    return kind


def _value(hint: Any, text: str) -> Any:
    """What a word means as a value of a parameter. Nothing that begins with a hyphen is taken for
    one: it is as likely an option whose predecessor lacks its value."""
    if not text or text.startswith("-"):
        raise _UnusualError
    kind, mark = _kind(hint), _mark(hint)
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise _UnusualError
        return text
    if kind in _NUMBERS:
        if not _NUMBERS[kind].fullmatch(text):
            raise _UnusualError
        number = kind(text)
        if isinstance(mark, Option):
            low, high = mark.minimum, mark.maximum
            if (low is not None and number < low) or (high is not None and number > high):
                raise _UnusualError
        return number
    assert kind in (str, Path), f"values of {kind} can't be read"
    return kind(text)
