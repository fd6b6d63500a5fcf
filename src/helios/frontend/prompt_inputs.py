"""What a client may give to a chat template: bounds on it, checked before any work.

Rendering has a budget of its own (`budget`); here what is too large, too deep or no text at all is
refused by name. `prompts` is the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from helios.errors import RequestError
from helios.frontend.markers import RESERVED

DEPTH_LIMIT: Final = 64
# Characters of all strings, of those in tools, and values in all.
CHARACTERS_LIMIT: Final = 1 << 25
TOOL_CHARACTERS_LIMIT: Final = 1 << 22
VALUES_LIMIT: Final = 1 << 20


class InputBounds:
    """What one prompt's inputs have used of their bounds."""

    def __init__(self) -> None:
        self._characters = 0
        self._values = 0

    def check_all(self, values: Sequence[object], where: str) -> int:
        """Checks the values of a list; returns their characters. Raises RequestError naming the
        one that has a character of those that prompts are made with, is nested too deeply, or
        makes the whole too large."""
        before = self._characters
        for index, value in enumerate(values):
            self.check(value, f"{where}[{index}]")
        return self._characters - before

    def check(self, value: object, where: str) -> None:
        """Checks one value, as `check_all` does."""
        for text in self._strings(value, where):
            self._characters += len(text)
            if self._characters > CHARACTERS_LIMIT:
                raise self._too_large(where)
            if RESERVED.search(text):
                raise RequestError(
                    "the noncharacters U+FDD0 to U+FDD3 can't be part of a prompt",
                    where=where,
                    remedy="Remove them",
                )

    def _strings(self, value: object, where: str) -> Iterator[str]:
        pending: list[tuple[object, int]] = [(value, 0)]
        while pending:
            found, depth = pending.pop()
            self._values += 1
            if self._values > VALUES_LIMIT:
                raise self._too_large(where)
            if isinstance(found, str):
                yield found
            elif isinstance(found, Mapping | list | tuple):
                if depth > DEPTH_LIMIT:
                    raise RequestError(
                        "it is nested too deeply",
                        where=where,
                        remedy=f"Use at most {DEPTH_LIMIT} levels of lists and objects",
                    )
                pending.extend((inner, depth + 1) for inner in _within(found))

    def _too_large(self, where: str) -> RequestError:
        return RequestError(
            "the conversation is too large, with its tools and documents",
            where=where,
            remedy=f"Send at most {CHARACTERS_LIMIT} characters and {VALUES_LIMIT} values",
        )


def _within(value: Mapping[Any, Any] | Sequence[Any]) -> Iterable[Any]:
    if isinstance(value, Mapping):
        yield from value
        yield from value.values()
    else:
        yield from value


def text_within(value: object) -> str:
    """The strings in a value, joined."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping | list | tuple):
        return ""
    return "".join(map(text_within, _within(value)))
