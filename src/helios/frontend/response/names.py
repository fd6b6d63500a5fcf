"""Names of tools and arguments as models write them between tags."""

from __future__ import annotations

import re
from typing import Final

NAME_LIMIT: Final = 256  # characters
_NO_NAME: Final = re.compile(r"[\s<>=\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether a text can be a name: some characters, none of them white space, a tag's or a
    marker."""
    return 0 < len(text) <= NAME_LIMIT and _NO_NAME.search(text) is None


def may_become_name(text: str) -> bool:
    """Whether a text is the beginning of a name, or nothing yet."""
    return len(text) <= NAME_LIMIT and _NO_NAME.search(text) is None
