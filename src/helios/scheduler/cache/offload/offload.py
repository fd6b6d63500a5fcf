"""The second tier behind the prefix cache: evicted content to host memory, published content to
files, and both back for prompts that begin the same.

`Offload` hears what the cache publishes and evicts. Published content is copied by the file
writer's thread while it stays published; if it is evicted first, it is copied at once, before its
page can be used for anything else. `find` looks up a prompt's chain of keys. Everything but that
copying happens on the thread that plans rounds, and nothing there waits for a disk.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from helios.dataclass import dataclass
from helios.runtime.geometry import HistoryRules
from helios.scheduler.cache.matching import first_page
from helios.scheduler.cache.offload.contents import Content, PageContents
from helios.scheduler.cache.offload.fetch import Fetch
from helios.scheduler.cache.offload.file_tier import FileTier
from helios.scheduler.cache.offload.host_tier import HostTier
from helios.scheduler.cache.offload.keys import Entry, KeyChain
from helios.scheduler.cache.offload.traffic import counts
from helios.scheduler.cache.tree import PrefixNode, Snapshot
from helios.scheduler.second_tier import Arrival
from helios.scheduler.tier_counts import TierCounts


class Offload:
    """Implements `helios.scheduler.second_tier.SecondTier` over one or both tiers.

    `contents` are the device's pages and snapshots, of `page_tokens` tokens and under the `rules`
    of the loaded model, whose keys `chain` makes. Close it before the device.
    """

    def __init__(
        self,
        contents: PageContents,
        chain: KeyChain,
        rules: HistoryRules,
        page_tokens: int,
        *,
        host: HostTier | None = None,
        files: FileTier | None = None,
    ) -> None:
        self.host = host
        self.files = files
        self._contents = contents
        self._chain = chain
        self._rules = rules
        self._page_tokens = page_tokens
        # Published pages' keys: those on the device needn't be fetched.
        self._on_device: set[bytes] = set()
        # Published and not yet copied for a file: where the content is on the device.
        self._uncopied: dict[bytes, _Place] = {}
        self._lock = threading.Lock()  # guards `_uncopied`
        # Held by the writer's thread while it copies from the device.
        self._copying = threading.Lock()
        self._closed = False

    # ------------------------------------------------------------ the cache's listener

    def page_published(self, node: PrefixNode) -> None:
        """Its file is written later."""
        entry = self._page_entry(node)
        self._on_device.add(entry.key)
        self._published(entry, node.page)

    def page_evicted(self, node: PrefixNode) -> None:
        """Its content is kept."""
        entry = self._page_entry(node)
        self._on_device.discard(entry.key)
        self._evicted(entry, node.page)

    def snapshot_published(self, snapshot: Snapshot) -> None:
        """Its file is written later."""
        self._published(self._snapshot_entry(snapshot), snapshot.row)

    def snapshot_evicted(self, snapshot: Snapshot) -> None:
        """Its content is kept."""
        self._evicted(self._snapshot_entry(snapshot), snapshot.row)

    def _published(self, entry: Entry, place: int) -> None:
        if self.files is None or entry.key in self.files:
            return
        with self._lock:
            self._uncopied[entry.key] = _Place(place)
        self.files.save_later(entry, self._copy_published)

    def _evicted(self, entry: Entry, place: int) -> None:
        with self._lock:
            uncopied = self._uncopied.pop(entry.key, None) is not None
        unknown = self.host is not None and not self.host.touch(entry.key)
        if not (unknown or uncopied):
            return
        content = self._read(entry, place)
        if self.host is not None and unknown:
            self.host.put(entry, content)
        if self.files is not None and uncopied:
            self.files.save(entry, content)

    def _copy_published(self, entry: Entry) -> Content | None:
        """On the writer's thread: the content, unless it was evicted before it was all copied."""
        with self._lock:
            found = self._uncopied.get(entry.key)
        if found is None:
            return None
        with self._copying:
            if self._closed:
                return None
            content = self._read(entry, found.place)
        with self._lock:
            if self._uncopied.get(entry.key) is not found:
                return None
            del self._uncopied[entry.key]
        return content

    def _read(self, entry: Entry, place: int) -> Content:
        if entry.node:
            return self._contents.read_snapshot(place)
        return self._contents.read_page(place)

    # ------------------------------------------------------------ bringing back

    def find(self, tokens: Sequence[int], matched: int, limit: int) -> Arrivals | None:
        """Begins to fetch what serves more than `matched`, at most `limit` of the tokens; None
        where there is nothing."""
        size, windows = self._page_tokens, self._rules.window_tokens
        keys = [self._chain.root(b"")]
        there: list[bool] = []
        present_from = 0  # every page from here on is on the device or in a tier
        best: tuple[int, Entry | None] = matched, None
        while True:
            depth = len(there)
            for endpoint, entry in self._beginnings(tokens, depth, keys[-1], limit):
                if endpoint > best[0] and first_page(endpoint, size, windows) >= present_from:
                    best = endpoint, entry
            if (depth + 1) * size > limit:
                break
            keys.append(self._chain.page(keys[-1], tokens[depth * size : (depth + 1) * size]))
            there.append(keys[-1] in self._on_device)
            if not there[-1] and not self._has(keys[-1]):
                if not windows:
                    break
                present_from = depth + 1
        endpoint, snapshot = best
        if endpoint <= matched:
            return None
        missing = [
            index
            for index in range(first_page(endpoint, size, windows), endpoint // size)
            if not there[index]
        ]
        entries = [Entry(keys[index + 1], self._contents.page_nbytes) for index in missing]
        endpoints = [(index + 1) * size for index in missing]
        if snapshot is not None:
            entries.append(snapshot)
            endpoints.append(endpoint)
        return Arrivals(self._fetch(entries), endpoints, has_snapshot=snapshot is not None)

    def _beginnings(
        self, tokens: Sequence[int], depth: int, key: bytes, limit: int
    ) -> list[tuple[int, Entry | None]]:
        """The endpoints that could be begun from with this many whole pages, and the snapshots
        that they need."""
        length = depth * self._page_tokens
        found: list[tuple[int, Entry | None]] = []
        if self._rules.starts_at_pages:
            found.append((length, None))
        if self._rules.restores:
            lengths: set[int] = set()
            for tier in (self.host, self.files):
                if tier is not None:
                    lengths.update(tier.lengths_after(key))
            for partial in lengths:
                if length + partial <= limit:
                    snapshot = self._chain.snapshot(key, tokens[length : length + partial])
                    if self._has(snapshot):
                        nbytes = self._contents.snapshot_nbytes
                        found.append((length + partial, Entry(snapshot, nbytes, key, partial)))
        return found

    def _has(self, key: bytes) -> bool:
        return any(tier is not None and key in tier for tier in (self.host, self.files))

    def _fetch(self, entries: Sequence[Entry]) -> Fetch:
        ready: dict[int, Content] = {}
        if self.host is not None:
            for index, entry in enumerate(entries):
                content = self.host.get(entry.key)
                if content is not None:
                    ready[index] = content
        if self.files is not None:
            return self.files.fetch(entries, ready)
        fetch = Fetch(entries, ready, threading.Condition(), 0)
        fetch.stop()
        return fetch

    def write_page(self, page: int, content: Content) -> None:
        """Copies arrived content into a free page."""
        self._contents.write_page(page, content)

    def write_snapshot(self, row: int, content: Content) -> None:
        """Copies arrived content into a free snapshot row."""
        self._contents.write_snapshot(row, content)

    # ------------------------------------------------------------ all of it

    def reset(self) -> None:
        """Forgets everything, files included: those of other engines on the same folder, too."""
        with self._lock:
            self._uncopied.clear()
        self._on_device.clear()
        if self.host is not None:
            self.host.clear()
        if self.files is not None:
            self.files.clear()

    def close(self) -> None:
        """Writes what is published and not yet in a file, as far as that is done within a second,
        and ends the threads. The device must still be there; afterwards nothing touches it.
        Idempotent."""
        if self.files is not None:
            self.files.close()
        with self._copying:
            self._closed = True

    def limits(self) -> dict[str, int]:
        """Bytes that each tier may keep."""
        return {name: tier.limit_nbytes for name, tier in self.counts().items()}

    def counts(self) -> dict[str, TierCounts]:
        """What each tier did and holds."""
        return counts(self.host, self.files)

    # ------------------------------------------------------------ keys

    def _page_entry(self, node: PrefixNode) -> Entry:
        return Entry(self._key(node), self._contents.page_nbytes)

    def _snapshot_entry(self, snapshot: Snapshot) -> Entry:
        node = self._key(snapshot.node)
        key = self._chain.snapshot(node, snapshot.partial)
        return Entry(key, self._contents.snapshot_nbytes, node, len(snapshot.partial))

    def _key(self, node: PrefixNode) -> bytes:
        """The node's key, kept in the node; so each costs one hash."""
        unknown = []
        at: PrefixNode | None = node
        while at is not None and not at.key:
            unknown.append(at)
            at = at.parent
        for found in reversed(unknown):
            if found.parent is None:
                found.key = self._chain.root(found.identity)
            else:
                found.key = self._chain.page(found.parent.key, found.tokens)
        return node.key


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """One publication: a page or a row. Compared by identity: the same place may be published
    again, and between the two it held something else."""

    place: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A fetch whose contents have endpoints; the last may be a snapshot's."""

    fetch: Fetch
    endpoints: Sequence[int]
    has_snapshot: bool

    @property
    def finished(self) -> bool:
        """Whether nothing more will arrive."""
        return self.fetch.finished

    def poll(self) -> Arrival | None:
        """What comes next, if it has arrived."""
        given = self.fetch.given
        content = self.fetch.poll()
        if content is None:
            return None
        is_snapshot = self.has_snapshot and given == len(self.endpoints) - 1
        return Arrival(self.endpoints[given], is_snapshot, content)

    def wait(self, timeout_ms: int) -> None:
        """Waits at most so long for something to arrive, or for the end."""
        self.fetch.wait(timeout_ms)

    def cancel(self) -> None:
        """Nobody wants the rest."""
        self.fetch.cancel()
