"""How messages and tables word numbers: sizes in binary units, counted nouns.

For what people read; nothing parses it.
"""

from __future__ import annotations


def show_size(nbytes: int) -> str:
    """A size in the largest binary unit that leaves at least one."""
    size = float(nbytes)
    for unit, digits in (("B", 0), ("KiB", 1), ("MiB", 1), ("GiB", 2)):
        if abs(size) < 1024:
            return f"{size:.{digits}f} {unit}"
        size /= 1024
    return f"{size:.2f} TiB"


def counted(count: int, noun: str) -> str:
    """`1 page`, `2 pages`: a count and a noun with a regular plural."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
