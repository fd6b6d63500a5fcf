"""Chat templates of families whose checkpoints ship code in their place, as data for preparations.

Each gives the prompt that the family's encoder gives. What isn't syntax but wording (headings,
preambles of effort) stands in a template's first lines, by names: `FamilyTemplate.words` lists
them, `words_of` reads what stands there, `with_words` puts a checkpoint's own in its place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from typing import Final

# A text, or several by name.
Words = str | dict[str, str]


@dataclass(frozen=True)
class Family:
    """What goes with a template: its file's `name`; the added tokens of which a tokenizer that
    belongs to it has every one; the syntaxes of calls and of reasoning, by the names that
    preparations know them by; the names of its words."""

    name: str
    markers: tuple[str, ...]
    tools: str
    reasoning: str
    words: tuple[str, ...]


class FamilyTemplate(Enum):
    """The templates that there are."""

    XTML = Family(
        "xtml",
        ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
        "xtml",
        "xtml_think",
        (
            "declared", "declared_later", "effort_words", "choice_words", "format_words",
            "schema_words",
        ),
    )  # fmt: skip
    DSML = Family(
        "dsml",
        ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "\uff5cDSML\uff5c"),
        "dsml_tool_calls",
        "think_tags",
        ("preambles", "heading", "schemas_heading"),
    )
    RECIPIENT_HEADERS = Family(
        "recipient_headers",
        ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
        "atem",
        "recipient_headers",
        ("identity", "tool_words", "metadata_words", "schema_words", "values_words"),
    )


BY_NAME: Final[Mapping[str, FamilyTemplate]] = {which.value.name: which for which in FamilyTemplate}


def read_template(which: FamilyTemplate) -> str:
    """A template's source."""
    return resources.files(__name__).joinpath(f"{which.value.name}.jinja").read_text("utf-8")


def words_of(which: FamilyTemplate) -> dict[str, Words]:
    """The words as the template has them."""
    source = read_template(which)
    return {name: ast.literal_eval(_place(name, source)[1]) for name in which.value.words}


def with_words(which: FamilyTemplate, words: Mapping[str, Words]) -> str:
    """The template's source with these words in place of its own; of several by name, those that
    are given."""
    source = read_template(which)
    for name, own in words_of(which).items():
        given = words.get(name, own)
        if isinstance(own, dict) and isinstance(given, dict):
            given = own | given
        if given != own:
            # What Python writes for a text or a dict of texts means the same in Jinja.
            source = source.replace(_place(name, source)[0], f"{{%- set {name} = {given!r} %}}", 1)
    return source


def _place(name: str, source: str) -> tuple[str, str]:
    """The statement that says a word, and the literal in it."""
    found = re.search(rf"{{%- set {name} = (.*?) %}}", source, re.DOTALL)
    assert found is not None, name
    return found[0], found[1]
