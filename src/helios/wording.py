"""How messages and tables word numbers and what others wrote: sizes in binary units, rates in
decimal, counted nouns, text without anything that a terminal obeys.

For what people read; nothing parses it.
"""

from __future__ import annotations

from typing import Final

# Starting and ending threads and opening files would be most of what is measured on less.
_LEAST_RATED_NBYTES: Final = 32 << 20


def show_size(nbytes: int) -> str:
    """A size in the largest binary unit that leaves at least one."""
    size = float(nbytes)
    for unit, digits in (("B", 0), ("KiB", 1), ("MiB", 1), ("GiB", 2)):
        if abs(size) < 1024:
            return f"{size:.{digits}f} {unit}"
        size /= 1024
    return f"{size:.2f} TiB"


def show_rate(nbytes: int, seconds: float) -> str | None:
    """So many bytes in so many seconds as a rate (10^6 or 10^9 bytes a second); None where they
    are too few to tell."""
    if nbytes < _LEAST_RATED_NBYTES or seconds <= 0:
        return None
    megabytes = nbytes / 1e6 / seconds
    if megabytes >= 1000:
        return f"{megabytes / 1000:.2f} GB/s"
    return f"{megabytes:.0f} MB/s" if megabytes >= 10 else f"{megabytes:.2g} MB/s"


def counted(count: int, noun: str) -> str:
    """`1 page`, `2 pages`: a count and a noun with a regular plural."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def escaped(text: str) -> str:
    """Text of others with what isn't printable escaped: nothing in it moves a cursor, begins a
    line or turns the order of what is shown."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show_name(name: str) -> str:
    """A name in quotes; one that isn't ASCII also by its code points, since it may look like
    another."""
    return repr(name) if name.isascii() else f"{name!r} (in ASCII {name!a})"
