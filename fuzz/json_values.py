"""Mutates JSON by its structure, so that what comes out still parses; `messages` does it for
Protobuf. The same random source gives the same result.

Every value of a document is a place: a key of an object or an index of a list.
"""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any, Final

_VALUES: Final = (
    *(None, True, False, [], {}, "", "x", "\0", "\ud800", "ä" * 300, "▁", "##"),
    *(0, 1, -1, 2, 255, 256, 1 << 31, (1 << 32) - 1, 1 << 53, 1 << 64, -(1 << 63), 10**400),
    *(0.0, -0.5, 1e-300, 1e300, float("inf"), float("nan")),
)
# Probability of changing a value rather than one within it; of the document, and of another.
_STOP_AT_ALL: Final = 0.02
_STOP: Final = 0.25
_MOST_COPIES: Final = 300


def altered(data: bytes, random: Random, changes: int | None = None) -> bytes:
    """A JSON text with one or a few changes. ValueError where there is none to change."""
    try:
        whole = [json.loads(data)]
        for _ in range(changes or random.choice((1, 1, 1, 2, 4))):
            _change(*_place(whole, random), whole, random)
        return json.dumps(whole[0], separators=(",", ":")).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply to be changed") from error


def _place(whole: list[Any], random: Random) -> tuple[Any, Any]:
    """A container and a key of it. Found from the top down: in a document that has thousands of
    values in one list, those beside the list are as likely."""
    container: Any = whole
    key: Any = 0
    while True:
        value = container[key]
        keys = list(value) if isinstance(value, dict) else range(len(_items(value)))
        if not keys or random.random() < (_STOP_AT_ALL if container is whole else _STOP):
            return container, key
        container, key = value, random.choice(keys)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _change(container: Any, key: Any, whole: list[Any], random: Random) -> None:
    action = random.randrange(6)
    if action == 0:
        container[key] = deepcopy(random.choice(_VALUES))
    elif action == 1:
        container[key] = _near(container[key], random)
    elif action == 2:
        other, at = _place(whole, random)
        container[key] = deepcopy(other[at])
    elif container is whole:  # a document is neither left out nor put elsewhere
        container[key] = [container[key]]
    elif action == 3:
        del container[key]
    elif isinstance(container, list):
        copies = random.choice((1, 1, 1, 2, _MOST_COPIES))
        container[key:key] = [deepcopy(container[key]) for _ in range(copies)]
    else:
        other, at = _place(whole, random)
        value = container.pop(key) if action == 4 else deepcopy(container[key])
        container[at if isinstance(at, str) else random.choice(("", "type", "x"))] = value


def _near(value: Any, random: Random) -> Any:
    """A value of the same type that differs a little."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return random.choice((value + 1, value - 1, -value, value * 2))
    if isinstance(value, str):
        at = random.randint(0, len(value))
        return random.choice((value[:at], value[at:], value[:at] + "\u0301" + value[at:]))
    if isinstance(value, list):
        return random.sample(value, len(value))
    if isinstance(value, dict):
        return dict(random.sample(list(value.items()), len(value) // 2))
    return random.choice(_VALUES)
