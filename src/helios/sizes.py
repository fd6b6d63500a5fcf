"""Sizes of memory as people write them in options. How they are shown is in `wording`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from helios.errors import HeliosError

# As many digits as any size or share needs, and few enough to compute with.
_NUMBER: Final = r"(?P<number>[0-9]{1,20}(\.[0-9]{1,20})?)"
_SIZE: Final = re.compile(
    _NUMBER + r"\s*(?P<unit>b|(?P<prefix>[kmgt])(i?b?))?", re.IGNORECASE | re.ASCII
)
_SHARE: Final = re.compile(_NUMBER + r"\s*%", re.ASCII)
_EXPONENTS: Final = {"k": 1, "m": 2, "g": 3, "t": 4}
# What fits a signed 64-bit number.
_MOST_NBYTES: Final = (1 << 63) - 1
_CACHE_MEMORY: Final = "--cache-memory"


def parse_size(text: str, option: str) -> int:
    """Bytes of a size like `2GiB` (powers of 1024), `500MB` (of 1000) or `123456`, part of a byte
    left out. Without the `B`, `2Gi` and `2G` are powers of 1024 too. Raises HeliosError that
    names the option for anything else."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        share = ", 500MB or 25%" if option == _CACHE_MEMORY else " or 500MB"
        raise HeliosError(f"{text!r} is no size", where=option, remedy=f"Write it like 2GiB{share}")
    unit = (found["unit"] or "").lower()
    base = 1000 if unit.endswith("b") and "i" not in unit else 1024
    exponent = _EXPONENTS[found["prefix"].lower()] if found["prefix"] else 0
    nbytes = int(Fraction(found["number"]) * base**exponent)
    if nbytes > _MOST_NBYTES:
        raise HeliosError(
            f"{text!r} is more memory than there is anywhere",
            where=option,
            remedy="Ask for what this machine has, like 2GiB"
            + (", or for a share of it, like 25%" if option == _CACHE_MEMORY else ""),
        )
    return nbytes


def parse_size_or_share(text: str) -> int | float:
    """Bytes as an int, or a share like `25%` as a float in (0, 1]. Raises HeliosError for
    anything else."""
    found = _SHARE.fullmatch(text.strip())
    if found is None:
        return parse_size(text, _CACHE_MEMORY)
    share = float(Fraction(found["number"]) / 100)
    if not 0 < share <= 1:
        raise HeliosError(
            f"{text!r} is no share", where=_CACHE_MEMORY, remedy="Write it like 25%, at most 100%"
        )
    return share
