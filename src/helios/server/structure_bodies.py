"""The form of an answer in a body: `response_format`, and the fields that vLLM and SGLang have.

One form a request; which field it came by is what errors name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from helios.frontend.grammar.structural_tags import AnswerForm, structural_tag
from helios.frontend.grammar.structure import (
    GbnfAnswer,
    GrammarAnswer,
    JsonAnswer,
    RegexAnswer,
    choice,
    json_schema,
    text_of,
)
from helios.server.failures import invalid, not_supported

_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}


def _grammar(value: object, where: str) -> AnswerForm:
    """A grammar in Lark's or in GBNF's writing, which has `::=`."""
    text = text_of(value, where)
    return GbnfAnswer(text, where) if "::=" in text else GrammarAnswer(text, where)


_Makers = Mapping[str, Callable[[object, str], AnswerForm]]
_FIELDS: Final[_Makers] = {
    "guided_json": json_schema,
    "guided_regex": lambda value, where: RegexAnswer(text_of(value, where), where),
    "guided_choice": choice,
    "guided_grammar": _grammar,
    "json_schema": json_schema,
    "regex": lambda value, where: RegexAnswer(text_of(value, where), where),
    "ebnf": _grammar,
    "grammar": _grammar,
    "structural_tag": structural_tag,
}
_STRUCTURED_OUTPUTS: Final[_Makers] = {
    "json": json_schema,
    "regex": lambda value, where: RegexAnswer(text_of(value, where), where),
    "choice": choice,
    "grammar": _grammar,
    "structural_tag": structural_tag,
    "json_object": lambda value, where: JsonAnswer(_OBJECT, where),
}


def structure_of(body: Mapping[str, Any]) -> AnswerForm | None:
    """The form that a body asks for. Raises ApiError 400 for two of them, RequestError for values
    that are none."""
    found: dict[str, AnswerForm] = {}
    response_format = _response_format(body.get("response_format"))
    if response_format is not None:
        found["response_format"] = response_format
    for field, make in _FIELDS.items():
        if body.get(field) is not None:
            found[field] = make(body[field], field)
    nested = body.get("structured_outputs")
    if nested is not None:
        if not isinstance(nested, Mapping):
            raise invalid("structured_outputs", "structured_outputs is no object. Send one")
        for field, value in nested.items():
            if value is None or value is False:
                continue
            where = f"structured_outputs.{field}"
            if field not in _STRUCTURED_OUTPUTS:
                raise not_supported(where, f"Use one of {', '.join(_STRUCTURED_OUTPUTS)}")
            found[where] = _STRUCTURED_OUTPUTS[field](value, where)
    if len(found) > 1:
        fields = list(found)
        raise invalid(
            fields[1], f"{fields[1]}: an answer has one form, and {fields[0]} gives one, too"
        )
    return next(iter(found.values()), None)


def _response_format(value: object) -> AnswerForm | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise invalid("response_format", "response_format is no object. Send one with a type")
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return JsonAnswer(_OBJECT, "response_format")
        case "json_schema":
            where = "response_format.json_schema"
            inner = value.get("json_schema")
            if not isinstance(inner, Mapping):
                raise invalid(where, f"{where} is missing. Add it, with a schema")
            if "schema" not in inner:
                raise invalid(f"{where}.schema", f"{where}.schema is missing. Add it")
            return json_schema(inner["schema"], f"{where}.schema")
        case "regex":
            where = "response_format.pattern"
            return RegexAnswer(text_of(value.get("pattern"), where), where)
        case "grammar":
            return _grammar(value.get("grammar"), "response_format.grammar")
        case "structural_tag":
            return structural_tag(value, "response_format")
        case other:
            raise invalid(
                "response_format.type",
                f"response_format.type: {other!r:.80} is none. Use text, json_object, json_schema,"
                " regex, grammar or structural_tag",
            )
