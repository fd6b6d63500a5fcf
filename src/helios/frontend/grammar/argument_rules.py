"""Arguments that are written one by one: rules for each parameter of a tool.

Text stands as it is up to its closing tag, without quotes; any other value is JSON of its schema.
Where a parameter may be text, it is written as text: the parser types what it can, so a text is
never quoted twice. Parameters come in the schema's order, those that aren't required may be left
out. What can't be kept to in this writing is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.grammar.free_text import FreeText
from helios.frontend.grammar.lark import GrammarWriter
from helios.frontend.grammar.patterns import UnsupportedPatternError, whole
from helios.frontend.grammar.schema_places import field_path
from helios.frontend.grammar.schemas import ANNOTATIONS, enforceable
from helios.frontend.response.parameter_types import KINDS, ToolSchemas, json_of
from helios.frontend.tools import Tool

# Writes one argument: its name, whether its value is text, and its value's expression, which ends
# with `end`.
ArgumentForm = Callable[[str, bool, str], str]


@dataclass(frozen=True, slots=True)
class Mentionable:
    """A marker that is a token and may stand in free text, unless that has one of the texts
    `not_after` before it: then it would end the value."""

    marker: str
    not_after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueEnds:
    """What ends a value: `tag`, and for parsers also what matches `early` (a regular expression,
    empty where there is none), so no free text may have it in it, its own end included.
    `mentionable` may stand in free text."""

    tag: str
    early: str = ""
    mentionable: Mentionable | None = None


DEFINITIONS: Final[tuple[str, ...]] = ("$defs", "definitions")
_OF_OBJECTS: Final = {"type", "properties", "required", "additionalProperties", *DEFINITIONS}
_OF_TYPES: Final = {"type", "nullable", "anyOf", "oneOf"}
_OF_OPTIONS: Final = {"type", "enum", "const"}
_OF_TEXT: Final = {"type", "pattern", "minLength", "maxLength"}
_UNSPELLABLE: Final = re.compile(r'[<>"=\n\r\x00-\x1f]|^\s|\s$|^$')
_LENGTH_LIMIT: Final = 1 << 16


def arguments_rule(
    writer: GrammarWriter,
    tool: Tool,
    ends: ValueEnds,
    form: ArgumentForm,
    where: str,
    *,
    escapes: bool = False,
) -> str:
    """A rule for all arguments of a tool. `ends` closes a value, and `form` writes what stands
    before it; with `escapes` it can write any name. Raises RequestError naming the schema's part
    that can't be kept to."""
    root = tool.parameters
    schema = _object_schema(root, where)
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        _refuse(where, "properties must be an object and required a list")
    undeclared = [name for name in required if name not in properties]
    if undeclared:
        _refuse(f"{where}.required", f"{undeclared[0]!r:.80} is not among the properties")
    kinds = ToolSchemas({tool.name: root})
    parts = []
    for name, declared in properties.items():
        at = where + field_path(("properties", name))
        if declared is False:
            if name in required:
                _refuse(at, "it is required, and no value of it is allowed")
            continue
        if _UNSPELLABLE.search(name) and not escapes:
            _refuse(at, "this model's syntax of calls can't write the name")
        value = {} if declared is True else _resolved(declared, root, at)
        may_be = kinds.kinds(tool.name, name) or frozenset(KINDS)
        is_text, expression = _argument(writer, value, may_be, root, ends, at)
        argument = writer.rule(form(name, is_text, expression))
        parts.append(argument if name in required else f"{argument}?")
    return writer.rule(" ".join(parts) or '""')


def object_rule(writer: GrammarWriter, tool: Tool, where: str) -> str:
    """All arguments of a tool as one JSON object."""
    return writer.json(enforceable({"type": "object", **tool.parameters}, where))


def _object_schema(root: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The schema of the arguments, which says nothing that their rules can't keep to."""
    schema = _resolved(root, root, where) if "$ref" in root else root
    for keyword in schema:
        if keyword not in _OF_OBJECTS and keyword not in ANNOTATIONS:
            _refuse(f"{where}.{keyword}", "this model's syntax of calls can't be kept to it")
    return schema


def _argument(
    writer: GrammarWriter,
    value: Mapping[str, Any],
    kinds: frozenset[str],
    root: Mapping[str, Any],
    ends: ValueEnds,
    where: str,
) -> tuple[bool, str]:
    """Whether an argument is written as text, and its expression up to its end."""
    said = {keyword for keyword in value if keyword not in ANNOTATIONS}
    if "enum" in said or "const" in said:
        return _options(writer, value, kinds, ends, where)
    if "string" not in kinds:
        definitions = {key: root[key] for key in DEFINITIONS if key in root}
        written = writer.json(enforceable({**definitions, **value}, where))
        return False, f"{written} {writer.literal(ends.tag)}"
    if said <= _OF_TYPES and _only_types(value):
        return True, _free_text(writer, ends)
    if kinds == {"string"} and said <= _OF_TEXT:
        return True, _bounded_text(writer, ends, value, where)
    return _refuse(where, f"of a text these can't be kept to: {', '.join(sorted(said - {'type'}))}")


def _free_text(writer: GrammarWriter, ends: ValueEnds) -> str:
    """Any text up to its end, with what it may mention."""
    if writer.is_signed(ends.tag):
        return writer.text_up_to(ends.tag)
    stops, mentions = [writer.sign(ends.tag)], ""
    if ends.mentionable is not None:
        before = FreeText(writer, stops, ends.mentionable.not_after).whole()
        mentions = writer.rule(f"({before} {writer.literal(ends.mentionable.marker)})*")
    return writer.rule(f"{mentions} {FreeText(writer, stops, early=ends.early).before(*stops)}")


def _bounded_text(
    writer: GrammarWriter, ends: ValueEnds, value: Mapping[str, Any], where: str
) -> str:
    """A text with a pattern or a length, up to its end."""
    if "pattern" in value and ("minLength" in value or "maxLength" in value):
        _refuse(where, "a pattern and a length can't be kept to together")
    signed = writer.is_signed(ends.tag)
    if "pattern" in value:
        try:
            pattern = whole(_found_anywhere(str(value["pattern"]))).regex
        except UnsupportedPatternError as error:
            _refuse(f"{where}.pattern", str(error))
        if signed:
            return writer.text_up_to(ends.tag, pattern)
        return writer.rule(FreeText(writer, [ends.tag], pattern=pattern).before(ends.tag))
    least, most = value.get("minLength", 0), value.get("maxLength")
    if most is None and not least:
        return _free_text(writer, ends)
    for number in (least, 0 if most is None else most):
        if not isinstance(number, int) or not 0 <= number <= _LENGTH_LIMIT:
            _refuse(where, f"lengths are from 0 to {_LENGTH_LIMIT}")
    if most is not None and least > most:
        _refuse(where, "minLength is more than maxLength")
    if signed:
        counted = f"(?s:.){{{least},{'' if most is None else most}}}"
        return writer.text_up_to(ends.tag, counted)
    return writer.rule(FreeText(writer, [ends.tag]).counted_before(ends.tag, least, most))


def _options(
    writer: GrammarWriter,
    value: Mapping[str, Any],
    kinds: frozenset[str],
    ends: ValueEnds,
    where: str,
) -> tuple[bool, str]:
    """An argument that is one of some values: texts as they are, others as JSON."""
    if not {keyword for keyword in value if keyword not in ANNOTATIONS} <= _OF_OPTIONS:
        _refuse(where, "beside enum and const nothing else can be kept to")
    options = value["enum"] if "enum" in value else [value["const"]]
    if not isinstance(options, list) or not options:
        _refuse(where, "enum is no list of values")
    if "const" in value:
        options = [option for option in options if option == value["const"]]
    texts = [isinstance(option, str) for option in options]
    if not options or any(texts) != all(texts):
        _refuse(where, "texts and other values can't be told apart in one enum")
    end = ends.tag
    early = re.compile(ends.early or r"(?!)")
    if any(
        text
        and (end.strip() in option or option != option.strip("\n") or early.search(option + end))
        for text, option in zip(texts, options, strict=True)
    ):
        _refuse(where, "a text of the enum can't be written in this model's syntax of calls")
    for option in options:
        if isinstance(option, str) and json_of(option, kinds) != json.dumps(
            option, ensure_ascii=False
        ):
            _refuse(where, f"{option!r:.80} would be read as a value of another type")
    shown = [option if isinstance(option, str) else json.dumps(option) for option in options]
    chosen = writer.choice([json.dumps(one) if one else '""' for one in shown])
    return all(texts), f"{chosen} {writer.literal(end)}"


def _only_types(value: Mapping[str, Any]) -> bool:
    """Whether a schema says nothing but types, so that any text fits one that may be text."""
    branches = [*value.get("anyOf", ()), *value.get("oneOf", ())]
    return all(
        isinstance(branch, Mapping)
        and {keyword for keyword in branch if keyword not in ANNOTATIONS} <= {"type", "nullable"}
        for branch in branches
    )


def _found_anywhere(pattern: str) -> str:
    """A pattern for the whole of a text in which the given one is found."""
    begins = pattern.startswith("^")
    ends = pattern.endswith("$") and not pattern.endswith("\\$")
    core = pattern[begins : len(pattern) - ends]
    anything = r"[\s\S]*"
    return f"{'' if begins else anything}(?:{core}){'' if ends else anything}"


def _resolved(schema: object, root: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The schema that references lead to, with what stands beside them."""
    for _ in range(32):
        if not isinstance(schema, Mapping):
            _refuse(where, "is no schema")
        reference = schema.get("$ref")
        if reference is None:
            return schema
        found: Any = root
        parts = str(reference).split("/")
        for part in parts[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        if parts[0] != "#" or not isinstance(found, Mapping):
            _refuse(where, f"{reference!r:.80} leads nowhere")
        beside = {key: item for key, item in schema.items() if key != "$ref"}
        kept = {
            key: item for key, item in beside.items() if key not in (*ANNOTATIONS, *DEFINITIONS)
        }
        if kept:
            _refuse(where, f"beside $ref nothing else can be kept to: {', '.join(sorted(kept))}")
        schema = found
    return _refuse(where, "its references lead in a circle")


def _refuse(where: str, why: str) -> NoReturn:
    raise RequestError(
        f"no grammar can be made of it: {why}",
        where=where,
        remedy="Leave it out, or don't ask for strict tools or a certain call",
    )
