"""The host-memory tier: content of evicted pages and snapshots, as long as there is room for it.

Owned by the scheduler's thread. What was used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from helios.dataclass import dataclass
from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.keys import Entry
from helios.scheduler.cache.offload.lengths import SnapshotLengths

# About what an entry takes beside its content. A page of a model without paged planes has none.
ENTRY_NBYTES: Final = 512


@dataclass(slots=True)
class HostTierCounters:
    """Counts since start, and the bytes of what was stored and found."""

    stored: int = 0
    stored_nbytes: int = 0
    found: int = 0
    found_nbytes: int = 0
    evicted: int = 0


class HostTier:
    """At most `limit_nbytes` of content and what keeping track of it takes."""

    def __init__(self, limit_nbytes: int) -> None:
        self.limit_nbytes = limit_nbytes
        self.nbytes = 0
        self.counters = HostTierCounters()
        self._contents: OrderedDict[bytes, tuple[Entry, Content]] = OrderedDict()
        self._lengths = SnapshotLengths()

    def __len__(self) -> int:
        """Entries."""
        return len(self._contents)

    def __contains__(self, key: bytes) -> bool:
        """Whether the content is here."""
        return key in self._contents

    def lengths_after(self, node: bytes) -> list[int]:
        """Lengths of the snapshots known at a node."""
        return self._lengths.after(node)

    def put(self, entry: Entry, content: Content) -> None:
        """Keeps a content, which must never change from now on; known ones count as used."""
        if self.touch(entry.key):
            return
        nbytes = entry.nbytes + ENTRY_NBYTES
        if nbytes > self.limit_nbytes:
            return
        while self.nbytes + nbytes > self.limit_nbytes:
            _, (oldest, _) = self._contents.popitem(last=False)
            self._lengths.remove(oldest)
            self.nbytes -= oldest.nbytes + ENTRY_NBYTES
            self.counters.evicted += 1
        self._contents[entry.key] = entry, content
        self._lengths.add(entry)
        self.nbytes += nbytes
        self.counters.stored += 1
        self.counters.stored_nbytes += entry.nbytes

    def touch(self, key: bytes) -> bool:
        """Whether the content is here; it counts as used."""
        if key not in self._contents:
            return False
        self._contents.move_to_end(key)
        return True

    def get(self, key: bytes) -> Content | None:
        """The content, counted as used."""
        found = self._contents.get(key)
        if found is None:
            return None
        self._contents.move_to_end(key)
        entry, content = found
        self.counters.found += 1
        self.counters.found_nbytes += entry.nbytes
        return content

    def clear(self) -> None:
        """Forgets everything."""
        self._contents.clear()
        self._lengths = SnapshotLengths()
        self.nbytes = 0
