"""Values in structural tags, checked for what they are and refused by their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from helios.errors import RequestError
from helios.frontend.grammar.schema_limits import check_text
from helios.frontend.grammar.structure import text_of
from helios.frontend.sampling import UnsupportedParameterError

EXCLUDED_LIMIT: Final = 32


class TagValues:
    """Reads values of a structural tag and collects the texts that have to come as they are, with
    their places."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def mapping(self, value: object, where: str) -> Mapping[str, Any]:
        """An object."""
        if not isinstance(value, Mapping):
            refuse(where, "is no object" if value is not None else "is missing", "Send an object")
        return value

    def known(self, said: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
        """Refuses other keys than these."""
        for key in said:
            if key not in keys:
                raise UnsupportedParameterError(
                    "isn't supported", where=f"{where}.{key}", remedy=f"Use {', '.join(keys)}"
                )

    def items(self, value: object, where: str) -> list[Any]:
        """A list that has items."""
        if not isinstance(value, list) or not value:
            refuse(where, "is no list, or an empty one", "Send at least one item")
        return value

    def fixed(self, value: object, where: str, *, empty: bool = False) -> str:
        """A text that has to come as it is."""
        if not isinstance(value, str) or not (value or empty):
            refuse(where, "is no text", "Send a text" if empty else "Send a nonempty text")
        check_text(value, where, ())
        self.texts.append((value, where))
        return value

    def flag(self, said: Mapping[str, Any], key: str, where: str) -> bool:
        """True or false, which it is by default."""
        value = said.get(key, False)
        if not isinstance(value, bool):
            refuse(f"{where}.{key}", "is neither true nor false", "Send one of them")
        return value

    def excluded(self, said: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        """Texts that may not come."""
        value = said.get(key) or []
        if not isinstance(value, list) or len(value) > EXCLUDED_LIMIT:
            refuse(f"{where}.{key}", "is no list of texts", f"Send {EXCLUDED_LIMIT} at most")
        found = []
        for index, text in enumerate(value):
            at = f"{where}.{key}[{index}]"
            check_text(text_of(text, at), at, ())
            found.append(text)
        return tuple(found)


def refuse(where: str, why: str, remedy: str) -> NoReturn:
    """Raises the RequestError of a place."""
    raise RequestError(why, where=where, remedy=remedy)
