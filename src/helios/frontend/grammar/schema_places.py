"""Places in a JSON schema, as references name them and errors show them."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn
from urllib.parse import quote, unquote

from helios.errors import RequestError

Path = tuple[str, ...]

_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,63}")
_SHOWN: Final = 64  # characters of a name
_LONGEST: Final = 512
_SAFE: Final = "!$&'()*+,;=:@~"  # characters of a reference that need no escape


def refuse(where: str, at: Path, why: str) -> NoReturn:
    """Raises the RequestError of a place in a schema, as the field that it is in the request."""
    raise RequestError(
        why,
        where=where + field_path(at),
        remedy="Leave out what isn't supported, or make it smaller",
    )


def field_path(at: Path) -> str:
    """A place as it is written behind the name of the field that holds the schema: words after a
    point, numbers of lists and other names between brackets. What is very long is cut."""
    parts = []
    for part in at:
        if part.isascii() and part.isdigit():
            parts.append(f"[{part}]")
        elif _WORD.fullmatch(part):
            parts.append(f".{part}")
        else:
            parts.append(f"[{json.dumps(part[:_SHOWN])}]")
    path = "".join(parts)
    return path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"


def pointer(at: Path) -> str:
    """A place as a reference writes it."""
    parts = (part.replace("~", "~0").replace("/", "~1") for part in at)
    return "#" + "".join(f"/{quote(part, safe=_SAFE, errors='replace')}" for part in parts)


def path_of(reference: str) -> Path:
    """The place that a reference of the form `#/…` names."""
    parts = unquote(reference[1:]).split("/")[1:]
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)
