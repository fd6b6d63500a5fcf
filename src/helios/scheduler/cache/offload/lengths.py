"""Which snapshots are known after a page: how many tokens after it, by the page's key.

A prompt's snapshots are looked up by key, and the key needs the tokens; so somebody must say how
many of the prompt's next tokens to try. Both tiers keep one of these.
"""

from __future__ import annotations

from collections import Counter

from helios.scheduler.cache.offload.keys import Entry


class SnapshotLengths:
    """Counts the entries of each length at each node."""

    def __init__(self) -> None:
        self._at: dict[bytes, Counter[int]] = {}

    def add(self, entry: Entry) -> None:
        """One more entry; pages are ignored."""
        if entry.node:
            self._at.setdefault(entry.node, Counter())[entry.length] += 1

    def remove(self, entry: Entry) -> None:
        """One entry fewer."""
        found = self._at.get(entry.node)
        if found is None:
            return
        found[entry.length] -= 1
        if found[entry.length] <= 0:
            del found[entry.length]
        if not found:
            del self._at[entry.node]

    def after(self, node: bytes) -> list[int]:
        """The lengths at a node, in no order."""
        # Another thread may add meanwhile: list() of a dict is one step.
        return list(self._at.get(node, ()))
