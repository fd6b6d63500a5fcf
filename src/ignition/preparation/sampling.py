"""A model card's sampling recommendations as text, `temperature=0.2,top_p=0.9`.

The form of the command's `--sampling` option and of the rebuild manifest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from helios.errors import ContractError
from ignition.preparation.checkpoints.checkpoint import GenerationDefaults

_KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "max_output_tokens": int,
}


def parse(text: str) -> GenerationDefaults:
    """Recommendations from their text; ContractError names what is none."""
    values: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            values[name] = _KINDS[name](value)
        except (KeyError, ValueError) as error:
            raise ContractError(
                f"{part!r} is no recommendation",
                where="--sampling",
                remedy=f"Give NAME=NUMBER, separated by commas; names are {', '.join(_KINDS)}",
            ) from error
    return GenerationDefaults(**values)


def text_of(defaults: GenerationDefaults) -> str:
    """The text that `parse` reads back."""
    given = {name: value for name, value in asdict(defaults).items() if value is not None}
    return ",".join(f"{name}={value}" for name, value in given.items())
