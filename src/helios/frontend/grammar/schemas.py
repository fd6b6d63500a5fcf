"""JSON schemas as clients send them, made into ones that a grammar enforces to the letter.

llguidance passes over keywords that it doesn't know, so each one is looked at here: it is
enforced, or it is an annotation and left out, or it is refused by name and place. What is rewritten
is where the library is more generous than the standard: patterns, formats, numbers beyond a double.
Structure stays as it is, so references keep their meaning. `limits` bounds what a schema may cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from helios.frontend.grammar.formats import FORMATS, HOSTNAME_CHARACTERS, MAY_BE_EMPTY
from helios.frontend.grammar.patterns import UnsupportedPatternError, searched
from helios.frontend.grammar.schema_limits import Costs, check_reach, check_text
from helios.frontend.grammar.schema_numbers import Bounds, exact_number
from helios.frontend.grammar.schema_places import Path, path_of, pointer, refuse

# White space between JSON's tokens: enough for any style, too little to stay in for ever.
JSON_SPACE: Final = r"[ \n\r\t]{0,16}"
# Names and texts have one spelling: a name that is spelled by numbers would be taken for another.
_OPTIONS: Final = {
    "x-guidance": {"whitespace_pattern": JSON_SPACE, "json_allowed_escapes": 'nrbtf\\"'}
}
# Keywords that say nothing about a value. `$schema` is one: keywords mean what they do in draft
# 2020-12, and the forms of older drafts that it allows beside them.
ANNOTATIONS: Final = frozenset(
    [
        "$anchor",
        "$comment",
        "$dynamicAnchor",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "discriminator",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
DRAFTS: Final = frozenset(
    [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema",
    ]
)
DEFINITIONS: Final = ("$defs", "definitions")
TYPES: Final = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])

Schema = Mapping[str, Any]


def enforceable(schema: Schema, where: str) -> dict[str, Any]:
    """The schema as llguidance enforces it, with this server's options. Raises RequestError naming
    `where`, the place in the schema and the keyword that can't be enforced."""
    check_reach(schema, where)
    return {**_Maker(where).whole(schema), **_OPTIONS}


class _Maker:
    """Walks a schema; `at` is the place of what is made."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._costs = Costs(where)
        self._bounds = Bounds(where)
        self._references: list[tuple[Path, Path]] = []
        self._places: set[Path] = set()

    def whole(self, given: Schema) -> dict[str, Any]:
        """The schema from its root. Definitions are made when something refers to them."""
        made = self.schema({key: one for key, one in given.items() if key not in DEFINITIONS}, ())
        assert isinstance(made, dict)
        definitions: dict[str, dict[str, Any]] = {key: {} for key in DEFINITIONS if key in given}
        for target, at in self._references:  # grows on the way
            if len(target) > 1 and target[0] in definitions:
                found, name = given[target[0]], target[1]
                if isinstance(found, Mapping) and name in found and target[:2] not in self._places:
                    check_text(name, self._where, at)
                    definitions[target[0]][name] = self.schema(found[name], target[:2])
        self._bounds.finish()
        for target, at in self._references:
            if target not in self._places:
                self._refuse(at, f"{pointer(target)!r:.80} leads to no schema")
        return {**made, **{key: one for key, one in definitions.items() if one}}

    def schema(self, given: object, at: Path) -> dict[str, Any] | bool:
        """A schema at its place."""
        self._places.add(at)
        if isinstance(given, bool):
            return given
        if not isinstance(given, Mapping):
            self._refuse(at, f"a {type(given).__name__} is no schema")
        made: dict[str, Any] = {}
        for keyword, value in given.items():
            if keyword in ANNOTATIONS:
                self._annotation(keyword, value, at)
                continue
            make = _KEYWORDS.get(keyword)
            if make is None:
                self._refuse(at, f"the keyword {keyword!r:.80} can't be enforced")
            made[keyword] = make(self, value, (*at, keyword))
        return self._together(made, at)

    def _refuse(self, at: Path, why: str) -> NoReturn:
        refuse(self._where, at, why)

    def _together(self, made: dict[str, Any], at: Path) -> dict[str, Any]:
        """What follows from several keywords."""
        self._bounds.add(made, at)
        made.pop("uniqueItems", None)
        if isinstance(made.get("items"), list):
            if "prefixItems" in made:
                self._refuse(at, "items is a list beside prefixItems")
        else:
            made.pop("additionalItems", None)
        name = made.pop("format", None)
        if name is not None:
            pattern = f"^(?:{FORMATS[name]})$"
            if "pattern" in made:
                made["allOf"] = [*made.get("allOf", []), {"pattern": pattern}]
            else:
                made["pattern"] = pattern
            if made.get("minLength", 2) < 2 and name not in MAY_BE_EMPTY:
                del made["minLength"]  # which is so anyway, and to find that out is dear
            if name == "hostname":
                most = made.get("maxLength", HOSTNAME_CHARACTERS)
                made["maxLength"] = min(most, HOSTNAME_CHARACTERS)
        least = made.get("minProperties", 0)
        if least > 1:
            # A name that comes twice counts once, and grammars don't remember names.
            if least > len(made.get("required", [])):
                self._refuse((*at, "minProperties"), "can't be enforced beyond what is required")
            del made["minProperties"]
        return made

    # ------------------------------------------------------------ keywords

    def _annotation(self, keyword: str, value: object, at: Path) -> None:
        if keyword == "$schema" and (not isinstance(value, str) or value.rstrip("#") not in DRAFTS):
            self._refuse((*at, keyword), f"the dialect {value!r:.80} isn't supported")
        if keyword == "$id" and at:
            self._refuse((*at, keyword), "a schema inside another can't have its own $id")

    def _schemas(self, value: object, at: Path) -> list[dict[str, Any] | bool]:
        if not isinstance(value, list) or not value:
            self._refuse(at, "is no list of schemas")
        return [self.schema(one, (*at, str(index))) for index, one in enumerate(value)]

    def _named(self, value: object, at: Path) -> dict[str, dict[str, Any] | bool]:
        if not isinstance(value, Mapping):
            self._refuse(at, "is no object of schemas")
        self._costs.properties(len(value), at)
        for name in value:
            check_text(name, self._where, at)
        return {name: self.schema(one, (*at, name)) for name, one in value.items()}

    def _by_pattern(self, value: object, at: Path) -> dict[str, dict[str, Any] | bool]:
        made = self._named(value, at)
        self._costs.patterns(len(made), at)
        return {self._pattern(name, (*at, name)): one for name, one in made.items()}

    def _items(self, value: object, at: Path) -> object:
        return self._schemas(value, at) if isinstance(value, list) else self.schema(value, at)

    def _reference(self, value: object, at: Path) -> str:
        text = self._text(value, at)
        if text != "#" and not text.startswith("#/"):
            self._refuse(at, f"{text!r:.80} isn't supported: only references that begin with #/")
        target = path_of(text)
        self._references.append((target, at))
        return pointer(target)

    def _type(self, value: object, at: Path) -> object:
        kinds = value if isinstance(value, list) else [value]
        unknown = [kind for kind in kinds if not isinstance(kind, str) or kind not in TYPES]
        if unknown or not kinds:
            self._refuse(at, f"{(unknown or kinds)!r:.80} is no type")
        return list(dict.fromkeys(kinds)) if isinstance(value, list) else value

    def _constant(self, value: object, at: Path) -> object:
        return self._costs.value(value, at)

    def _enumeration(self, value: object, at: Path) -> object:
        if not isinstance(value, list) or not value:
            self._refuse(at, "is no list of values")
        return [self._costs.value(one, at) for one in value]

    def _number(self, value: object, at: Path) -> int | float:
        return exact_number(value, self._where, at)

    def _multiple(self, value: object, at: Path) -> int | float:
        number = self._number(value, at)
        if number <= 0:
            self._refuse(at, "isn't larger than 0")
        self._costs.multiple(number, at)
        return number

    def _count(self, value: object, at: Path) -> int:
        number = self._number(value, at)
        if number < 0 or number != int(number):
            self._refuse(at, "is no count")
        return int(number)

    def _text(self, value: object, at: Path) -> str:
        if not isinstance(value, str):
            self._refuse(at, "is no text")
        check_text(value, self._where, at)
        return value

    def _pattern(self, value: object, at: Path) -> str:
        try:
            return searched(self._text(value, at)).regex
        except UnsupportedPatternError as error:
            self._refuse(at, f"the pattern can't be enforced: {error}")

    def _format(self, value: object, at: Path) -> str:
        if not isinstance(value, str) or value not in FORMATS:
            self._refuse(at, f"the format {value!r:.80} can't be enforced")
        return value

    def _required(self, value: object, at: Path) -> list[str]:
        if not isinstance(value, list):
            self._refuse(at, "is no list of names")
        self._costs.properties(len(value), at)
        return list(dict.fromkeys(self._text(name, at) for name in value))

    def _unique(self, value: object, at: Path) -> bool:
        if value is not False:
            self._refuse(at, "the keyword 'uniqueItems' can't be enforced")
        return False


_KEYWORDS: Final[dict[str, Callable[[_Maker, object, Path], object]]] = {
    "$defs": _Maker._named,
    "$ref": _Maker._reference,
    "additionalItems": _Maker.schema,
    "additionalProperties": _Maker.schema,
    "allOf": _Maker._schemas,
    "anyOf": _Maker._schemas,
    "const": _Maker._constant,
    "definitions": _Maker._named,
    "enum": _Maker._enumeration,
    "exclusiveMaximum": _Maker._number,
    "exclusiveMinimum": _Maker._number,
    "format": _Maker._format,
    "items": _Maker._items,
    "maxItems": _Maker._count,
    "maxLength": _Maker._count,
    "maxProperties": _Maker._count,
    "maximum": _Maker._number,
    "minItems": _Maker._count,
    "minLength": _Maker._count,
    "minProperties": _Maker._count,
    "minimum": _Maker._number,
    "multipleOf": _Maker._multiple,
    "oneOf": _Maker._schemas,
    "pattern": _Maker._pattern,
    "patternProperties": _Maker._by_pattern,
    "prefixItems": _Maker._schemas,
    "properties": _Maker._named,
    "required": _Maker._required,
    "type": _Maker._type,
    "uniqueItems": _Maker._unique,
}
