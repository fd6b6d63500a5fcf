"""URIs, and what others say, as messages and logs show them: without secrets, on one line, short.

A location set is unsigned, and whoever wrote it may have put a password or a signed query into a
URL, or characters that a terminal obeys. What is shown names the place, no more. `locations`,
`mirror`, `fetch` and `cache` are the callers.
"""

from __future__ import annotations

import re
from typing import Final

from helios.wording import escaped

HIDDEN: Final = "…"
_SHOWN_LIMIT: Final = 200  # characters

# Scheme, slashes, and what should be user, host and port.
_PARTS: Final = re.compile(r"([a-z][a-z0-9+.-]*:)?([/\\]*)([^/?#]*)", re.IGNORECASE)
_HOST: Final = re.compile(r"([^:\[\]]*|\[[^\]]*\])(:\d*)?")


def shown_uri(uri: str, limit: int = _SHOWN_LIMIT) -> str:
    """The URI for a reader: user, password, query and fragment are replaced by `…`."""
    parts = _PARTS.match(uri)
    assert parts is not None, "it also matches nothing"
    scheme, slashes, authority = (part or "" for part in parts.groups())
    if scheme.lower() == "file:" and len(slashes) != 2:
        return shown_text(uri, limit)  # a path, in which any character is one of a name
    rest = uri[parts.end() :]
    if "@" not in authority and "@" in rest and not _HOST.fullmatch(authority):
        # A password with a slash in it makes this no URL, and is one all the same.
        authority, rest = rest[: rest.rindex("@") + 1], rest[rest.rindex("@") + 1 :]
    if "@" in authority:
        authority = f"{HIDDEN}@{authority.rpartition('@')[2]}"
    path = re.split(r"[?#]", rest, maxsplit=1)
    query = HIDDEN if len(path) > 1 else ""
    mark = rest[len(path[0]) : len(path[0]) + 1]
    return shown_text(f"{scheme}{slashes}{authority}{path[0]}{mark}{query}", limit)


def shown_text(text: str, limit: int = _SHOWN_LIMIT) -> str:
    """Text of others on one line, at most `limit` characters and `…`."""
    shown = escaped(text[:limit])
    return shown if len(text) <= limit else f"{shown}{HIDDEN}"
