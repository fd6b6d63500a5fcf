"""Body fields that have no meaning here, as a response's header and the log name them.

Names come from the client. The header has at most 20, each of at most 96 characters; what can't
stand there, or would look like two names, is percent-encoded as UTF-8. If there are more, its last
item is their number: `+3`.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence
from typing import Final

_SHOWN: Final = 20
_NAME_LIMIT: Final = 96  # characters, encoded
# All of ASCII that is seen, but the comma, the plus sign and the percent sign.
_PLAIN: Final = "!\"#$&'()*-./:;<=>?@[\\]^_`{|}~"
_HALF_AN_ESCAPE: Final = re.compile(r"%.?\Z")
_LOGGED: Final = 16_384  # characters of all names together
_LOGGED_NAME: Final = 256  # characters


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """The response header that names the fields, none where there are none."""
    shown = [_encoded(name) for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        shown.append(f"+{len(names) - _SHOWN}")
    return {"x-helios-ignored": ", ".join(shown)} if shown else {}


def logged_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names as the access log has them: all, unless they are so long that a line would grow
    without bound. Then the last one is the number of the others, as in the header."""
    logged: list[str] = []
    left = _LOGGED
    for name in names:
        shown = name[:_LOGGED_NAME]
        left -= len(shown) + 1
        if left < 0:
            return (*logged, f"+{len(names) - len(logged)}")
        logged.append(shown)
    return tuple(logged)


def _encoded(name: str) -> str:
    encoded = urllib.parse.quote(name[:_NAME_LIMIT], safe=_PLAIN)
    return _HALF_AN_ESCAPE.sub("", encoded[:_NAME_LIMIT])
