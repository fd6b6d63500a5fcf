"""Sizes of memory as people write them in options. How they are shown is in `wording`."""

from __future__ import annotations

import re
from typing import Final

from helios.errors import HeliosError

_SIZE: Final = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kmgt]?i?b?)", re.IGNORECASE)
_EXPONENTS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SHARE: Final = re.compile(r"(?P<percent>\d+(\.\d+)?)\s*%")
_CACHE_MEMORY: Final = "--cache-memory"


def parse_size(text: str, option: str) -> int:
    """Bytes of a size like `2GiB` (powers of 1024), `500MB` (of 1000) or `123456`. Raises
    HeliosError that names the option for anything else."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        share = ", 500MB or 25%" if option == _CACHE_MEMORY else " or 500MB"
        raise HeliosError(f"{text!r} is no size", where=option, remedy=f"Write it like 2GiB{share}")
    unit = found["unit"].lower()
    base = 1000 if unit.endswith("b") and "i" not in unit else 1024
    return int(float(found["number"]) * base ** _EXPONENTS[unit.rstrip("ib")])


def parse_size_or_share(text: str) -> int | float:
    """Bytes as an int, or a share like `25%` as a float in (0, 1]. Raises HeliosError for
    anything else."""
    found = _SHARE.fullmatch(text.strip())
    if found is None:
        return parse_size(text, _CACHE_MEMORY)
    share = float(found["percent"]) / 100
    if not 0 < share <= 1:
        raise HeliosError(
            f"{text!r} is no share", where=_CACHE_MEMORY, remedy="Write it like 25%, at most 100%"
        )
    return share
