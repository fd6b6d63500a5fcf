"""Values of `ignition prepare`'s options: how they are written, and how the help says a default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import typer

from helios.errors import ContractError
from ignition.capture.target import CPU, TARGETS, Target, named
from ignition.preparation.extents import defaults

_NONE: Final = "none"  # a list of programs that is empty


def default(field: str) -> str:
    """The default of an option, for each target, as its help says it; `field` of `Defaults`."""
    texts = []
    for target in (CPU, *(t for t in TARGETS.values() if t.is_cuda)):
        value = getattr(defaults(target), field)
        listed = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        texts.append(listed if target is CPU else f"of {target.name} {listed}")
    return f"default: {', '.join(texts)}."


def one_target(names: Sequence[str]) -> Target:
    """The one target; cpu where none is named. Raises ContractError for several."""
    targets = [named(name) for name in names] or [CPU]
    if len(targets) > 1:
        raise ContractError(
            f"a core can't be for {' and '.join(names)} at once: its contract has one size of"
            " pages, and theirs may differ",
            where="--target",
            remedy="Prepare a core for each",
        )
    return targets[0]


def capacities(option: str, text: str) -> tuple[int, ...]:
    """A list of numbers. Raises BadParameter naming the option."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is no list of numbers like 1,2,4", param_hint=option
        ) from error


def optional(option: str, text: str) -> tuple[int, ...]:
    """A list that may be empty."""
    return () if text == _NONE else capacities(option, text)
