"""Structural tags that could hurt: many triggers, long ones, formats in formats."""

from __future__ import annotations

from typing import Any, Final

from tests.frontend.grammar.hostile_makers import GRAMMAR, Hostile, tag

_ANY: Final[dict[str, Any]] = {"type": "any_text"}


def _tag(begin: str, content: dict[str, Any], end: str | list[str] = ">") -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _triggered(triggers: list[str], tags: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags, **more}


def _nested(levels: int) -> dict[str, Any]:
    form = _ANY
    for level in range(levels):
        form = _triggered([f"<{level}"], [_tag(f"<{level}", form, f"</{level}>")])
    return form


def _many(count: int, text: str) -> dict[str, Any]:
    """So many triggers, and texts between tags that keep all of them in question."""
    triggers = [f"{text}{number:04}" for number in range(count)]
    return _triggered(triggers, [_tag(trigger, _ANY) for trigger in triggers])


def _excluded(count: int, text: str) -> dict[str, Any]:
    return {"type": "any_text", "excludes": [f"{text}{number:03}" for number in range(count)]}


TAGS: Final[dict[str, Hostile]] = {
    "32 triggers": tag(_many(32, "<"), GRAMMAR),
    "32 long triggers": tag(_many(32, "ab" * 1000)),
    "33 triggers": tag(_many(33, "<"), "too many"),
    "a trigger of 8,192": tag(_triggered(["x" * 8192], [_tag("x" * 8192, _ANY)])),
    "an exclusion of 8,192": tag({"type": "any_text", "excludes": ["ab" * 4096]}),
    "32 exclusions": tag(_excluded(32, "<"), GRAMMAR),
    "32 long exclusions": tag(_excluded(32, "ab" * 1000)),
    "triggers and exclusions": tag({**_many(32, "a"),
        "excludes": _excluded(32, "b")["excludes"]}, GRAMMAR),
    "900 tags of one trigger": tag(
        _triggered(["<"], [_tag(f"<{number}>", _ANY) for number in range(900)])
    ),
    "tags on 30 levels": tag(_nested(30)),
    "tags on 70 levels": tag(_nested(70), "too many formats"),
    "1,000 alternatives of any text": tag({"type": "or", "elements": [_ANY] * 990}),
    "400 texts after one another": tag(
        {"type": "sequence", "elements": [_ANY, {"type": "const_string", "value": "a"}] * 400}
    ),
    "a tag with 500 ends": tag(_tag("<", _ANY, [f"{number}>" for number in range(500)])),
    "a pattern without end before a text": tag(
        {
            "type": "sequence",
            "elements": [
                {"type": "regex", "pattern": "(a|aa)*(.*b){20}"},
                {"type": "const_string", "value": "b" * 500},
            ],
        }
    ),
    "900 schemas": tag(
        {
            "type": "sequence",
            "elements": [{"type": "json_schema", "json_schema": {"enum": [1, 2]}}] * 900,
        }
    ),
}  # fmt: skip
