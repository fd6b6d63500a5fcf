"""Places in a JSON schema, as references name them and errors show them."""

from __future__ import annotations

from typing import Final, NoReturn
from urllib.parse import quote, unquote

from helios.errors import RequestError

Path = tuple[str, ...]

_SAFE: Final = "!$&'()*+,;=:@~"  # characters of a reference that need no escape


def refuse(where: str, at: Path, why: str) -> NoReturn:
    """Raises the RequestError of a place in a schema."""
    place = f"{pointer(at)}: " if at else ""
    raise RequestError(
        f"{place}{why}", where=where, remedy="Leave out what isn't supported, or make it smaller"
    )


def pointer(at: Path) -> str:
    """A place as a reference writes it."""
    parts = (part.replace("~", "~0").replace("/", "~1") for part in at)
    return "#" + "".join(f"/{quote(part, safe=_SAFE, errors='replace')}" for part in parts)


def path_of(reference: str) -> Path:
    """The place that a reference of the form `#/…` names."""
    parts = unquote(reference[1:]).split("/")[1:]
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)
