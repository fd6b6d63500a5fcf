"""Which trials a command takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def chosen(names: Iterable[str], words: Sequence[str]) -> list[str]:
    """Names that begin with one of the words; all of them where there are none. Raises SystemExit
    where none is left."""
    found = [name for name in names if not words or name.startswith(tuple(words))]
    if not found:
        raise SystemExit(f"no trial's name begins with {' or '.join(map(repr, words))}")
    return found
