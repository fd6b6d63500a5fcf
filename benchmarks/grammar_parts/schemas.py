"""JSON schemas of varied shape, two hundred or so: some as services have them, the others drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

Schema = dict[str, Any]

_NAMES: Final = (
    "id name title description status created_at updated_at owner email address city country total"
    " currency quantity price tags notes items children parent kind score label category start end"
    " duration url version enabled priority source target author language summary details value"
)
_WORDS: Final = tuple(_NAMES.split())


def _object(properties: Schema, required: list[str] | None = None, **more: Any) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
        **more,
    }


def _texts(*names: str) -> Schema:
    return {name: {"type": "string"} for name in names}


def realistic() -> dict[str, Schema]:
    """Schemas that somebody could send."""
    money = _object(
        {"amount": {"type": "number", "minimum": 0}, "currency": {"enum": ["EUR", "USD"]}}
    )
    line = _object({"sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, "price": money})
    person = _object({**_texts("name"), "age": {"type": "integer", "minimum": 0, "maximum": 130}})
    node: Schema = _object(
        {
            "label": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        }
    )
    event = _object(
        {
            "title": {"type": "string", "minLength": 1, "maxLength": 80},
            "date": {"type": "string", "format": "date"},
            "time": {"type": "string", "format": "time"},
            "people": {"type": "array", "items": person, "minItems": 1, "maxItems": 5},
        }
    )
    maybe = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    return {
        "person": person,
        "event": event,
        "order": _object(
            {
                "id": {"type": "string", "format": "uuid"},
                "lines": {"type": "array", "items": line},
                "note": maybe,
            }
        ),
        "tree": {"$ref": "#/$defs/node", "$defs": {"node": node}},
        "sentiment": _object(
            {
                "sentiment": {"enum": ["positive", "negative", "neutral"]},
                "score": {"type": "number", "minimum": 0, "maximum": 1},
            }
        ),
        "steps": _object(
            {
                "steps": {"type": "array", "items": _object(_texts("explanation", "output"))},
                "final_answer": {"type": "string"},
            }
        ),
        "search": _object(
            {
                "query": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50},
                "sort": {"enum": ["asc", "desc"]},
            },
            ["query"],
        ),
        "any object": {"type": "object"},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "measurements": _object(
            {
                "unit": {"const": "celsius"},
                "values": {"type": "array", "items": {"type": "number"}, "maxItems": 24},
            }
        ),
        "contact": _object(
            {
                "email": {"type": "string", "format": "email"},
                "site": {"type": "string", "format": "uri"},
                "host": {"type": "string", "format": "ipv4"},
            }
        ),
        "shape": {
            "oneOf": [
                _object(
                    {
                        "kind": {"const": "circle"},
                        "radius": {"type": "number", "exclusiveMinimum": 0},
                    }
                ),
                _object(
                    {
                        "kind": {"const": "box"},
                        "width": {"type": "number"},
                        "height": {"type": "number"},
                    }
                ),
            ]
        },
        "classification": _object(
            {
                "labels": {
                    "type": "array",
                    "items": {"enum": [f"class {i}" for i in range(200)]},
                    "maxItems": 3,
                }
            }
        ),
        "configuration": _object({name: {"type": "boolean"} for name in _WORDS}, []),
        "table": _object(
            {
                "rows": {
                    "type": "array",
                    "items": {
                        "type": "array",
                        "prefixItems": [
                            {"type": "string"},
                            {"type": "integer"},
                            {"type": "boolean"},
                        ],
                        "items": False,
                        "minItems": 3,
                    },
                }
            }
        ),
        "translation": _object(
            {code: {"type": "string"} for code in ("de", "fr", "es", "it", "pl", "ja")}
        ),
        "citation": _object(
            {
                "quote": {"type": "string"},
                "page": {"type": "integer"},
                "doi": {"type": "string", "pattern": r"^10\.\d{4,9}/\S+$"},
            },
            ["quote"],
        ),
        "extraction": _object(
            {
                "entities": {
                    "type": "array",
                    "items": _object(
                        {
                            "text": {"type": "string"},
                            "type": {"enum": ["PER", "LOC", "ORG"]},
                            "start": {"type": "integer"},
                            "end": {"type": "integer"},
                        }
                    ),
                }
            }
        ),
        "decision": _object(
            {
                "thought": {"type": "string"},
                "action": {"enum": ["search", "answer", "stop"]},
                "input": maybe,
            }
        ),
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+(-[a-z0-9.]+)?$"},
    }


class _Drawn:
    """Draws schemas; each is made of what was drawn before it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def schema(self, depth: int) -> Schema:
        """A schema at most so deep."""
        leaves: list[Callable[[], Schema]] = [self._text, self._number, self._choice, self._plain]
        inner: list[Callable[[int], Schema]] = [
            self._object,
            self._object,
            self._array,
            self._union,
            self._map,
        ]
        if depth == 0 or self._random.random() < 0.25:
            return self._random.choice(leaves)()
        return self._random.choice(inner)(depth - 1)

    def whole(self) -> Schema:
        """An object, as answers mostly are."""
        return self._object(self._random.choice([1, 2, 2, 3]))

    def _text(self) -> Schema:
        pick = self._random
        return pick.choice(
            [
                {"type": "string"},
                {"type": "string", "maxLength": pick.randint(5, 200)},
                {"type": "string", "format": pick.choice(["date", "date-time", "uuid", "email"])},
                {
                    "type": "string",
                    "pattern": pick.choice(["^[a-z]+(-[a-z]+)*$", r"^\d{3,8}$", "^#[0-9a-f]{6}$"]),
                },
            ]
        )

    def _number(self) -> Schema:
        pick = self._random
        low = pick.randint(-1000, 1000)
        return pick.choice(
            [
                {"type": "integer"},
                {"type": "integer", "minimum": low, "maximum": low + pick.randint(1, 10_000)},
                {"type": "number"},
                {"type": "number", "minimum": low / 10},
                {"type": "integer", "multipleOf": pick.choice([2, 5, 100])},
            ]
        )

    def _choice(self) -> Schema:
        count = self._random.choice([2, 3, 5, 30])
        return {"enum": [f"{self._random.choice(_WORDS)} {i}" for i in range(count)]}

    def _plain(self) -> Schema:
        return {"type": self._random.choice(["boolean", "null", "string"])}

    def _object(self, depth: int) -> Schema:
        names = self._random.sample(_WORDS, self._random.choice([1, 3, 5, 8, 20]))
        required = [name for name in names if self._random.random() < 0.7]
        made = _object({name: self.schema(depth) for name in names}, required)
        if self._random.random() < 0.2:
            del made["additionalProperties"]
        return made

    def _array(self, depth: int) -> Schema:
        made: Schema = {"type": "array", "items": self.schema(depth)}
        if self._random.random() < 0.5:
            made |= {
                "minItems": self._random.randint(0, 2),
                "maxItems": self._random.randint(2, 10),
            }
        return made

    def _union(self, depth: int) -> Schema:
        return {"anyOf": [self.schema(depth), {"type": "null"}, self.schema(0)]}

    def _map(self, depth: int) -> Schema:
        return {"type": "object", "additionalProperties": self.schema(depth)}


def schemas(count: int, seed: int = 1) -> dict[str, Schema]:
    """So many schemas by name, those that somebody could send first."""
    made = dict(list(realistic().items())[:count])
    drawn = _Drawn(seed)
    return {**made, **{f"drawn {i}": drawn.whole() for i in range(count - len(made))}}
