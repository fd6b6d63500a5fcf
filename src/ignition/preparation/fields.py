"""Typed, bounded access to untrusted key-value metadata: a JSON object, or a GGUF file's header.

Every read names the field it refuses. Both checkpoint readers use it; it knows no field itself.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from ignition.preparation.errors import CheckpointError

_Value = TypeVar("_Value")

JSON_LIMIT_NBYTES: Final = 64 << 20


class Fields:
    """The fields of `values`; `where` (a file, or an object inside one) goes into every error.

    A field that is absent and one that is null are the same. Methods ending in `_or_none` accept
    that; the others don't.
    """

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self.values = values
        self.where = where

    def integer_or_none(self, name: str, lowest: int, highest: int) -> int | None:
        """An integer in [lowest, highest]."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refusal(name, f"must be an integer, not {_shown(value)}")
        if not lowest <= value <= highest:
            raise self.refusal(name, f"is {value}, which is outside [{lowest}, {highest}]")
        return value

    def integer(self, name: str, lowest: int, highest: int) -> int:
        """As `integer_or_none`, required."""
        return self._present(name, self.integer_or_none(name, lowest, highest))

    def number_or_none(self, name: str, lowest: float, highest: float) -> float | None:
        """A finite number in [lowest, highest]."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.refusal(name, f"must be a number, not {_shown(value)}")
        if not lowest <= value <= highest or math.isnan(value):
            raise self.refusal(name, f"is {value}, which is outside [{lowest}, {highest}]")
        return float(value)

    def number(self, name: str, lowest: float, highest: float) -> float:
        """As `number_or_none`, required."""
        return self._present(name, self.number_or_none(name, lowest, highest))

    def flag_or_none(self, name: str) -> bool | None:
        """A boolean."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refusal(name, f"must be true or false, not {_shown(value)}")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A string."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise self.refusal(name, f"must be a string, not {_shown(value)}")
        return value

    def text(self, name: str) -> str:
        """As `text_or_none`, required."""
        return self._present(name, self.text_or_none(name))

    def fields_or_none(self, name: str) -> Fields | None:
        """A nested object."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refusal(name, f"must be an object, not {_shown(value)}")
        return Fields(value, f"{self.where}, {name}")

    def refusal(self, name: str, what: str, remedy: str = "") -> CheckpointError:
        """An error about one field, for the caller to raise."""
        return CheckpointError(f"`{name}` {what}", where=self.where, remedy=remedy)

    def _present(self, name: str, value: _Value | None) -> _Value:
        if value is None:
            raise self.refusal(name, "is missing")
        return value


def read_json_object(path: Path) -> Fields:
    """The object in a JSON file of at most `JSON_LIMIT_NBYTES`."""
    content = read_bounded(path, JSON_LIMIT_NBYTES)
    return Fields(parse_json_object(content, str(path.name)), str(path.name))


def parse_json_object(content: bytes, where: str) -> dict[str, object]:
    """Parses a JSON object; `where` names it in errors."""
    try:
        value = json.loads(content, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"isn't valid JSON: {error}", where=where) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"must hold a JSON object, not {_shown(value)}", where=where)
    return value


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose names differ: of two equal ones, readers would not agree which counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice!r:.80} is there twice in one object")
    return found


def read_bounded(path: Path, limit_nbytes: int) -> bytes:
    """A whole file, refused if it is missing, unreadable or larger than the limit."""
    try:
        nbytes = path.stat().st_size
        if nbytes > limit_nbytes:
            raise CheckpointError(
                f"has {nbytes} bytes, more than the {limit_nbytes} that such a file may have",
                where=path.name,
            )
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"can't be read: {error.strerror}",
            where=str(path),
            remedy="The checkpoint folder must be complete",
        ) from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
