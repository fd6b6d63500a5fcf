"""A case of the corpus of JSON schemas: a schema, with values that fit it and values that don't.

A value is given as JSON text where its spelling matters. `narrower`
holds values that fit a schema and that no grammar of ours admits, with `note` saying why: an answer
is made, not judged, so what is admitted has to fit, and not all that fits has to be admitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Text:
    """A value by its JSON text."""

    json: str


@dataclass(frozen=True)
class Case:
    """A schema, with values that fit it (`valid`; those in `narrower` aren't admitted) and values
    that don't. With `refused` the schema is refused, and the error names that."""

    schema: Any
    valid: list[Any] = field(default_factory=list)
    invalid: list[Any] = field(default_factory=list)
    narrower: list[Any] = field(default_factory=list)
    refused: str = ""


@dataclass(frozen=True)
class Keyword:
    """A keyword's cases, and what the table says beside its outcome."""

    name: str
    vocabulary: str
    cases: list[Case]
    note: str = ""


def refuses(name: str, schema: Any, vocabulary: str) -> Keyword:
    """A keyword whose schemas are all refused."""
    return Keyword(name, vocabulary, [Case(schema, refused=name)])
