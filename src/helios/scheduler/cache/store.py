"""Where pages and snapshots are: free, private to somebody, published and pinned, or published and
waiting for eviction.

`PrefixStore` owns the pools, the tree and the two orders of eviction, and keeps them in step. It
doesn't know who pins; `PrefixCache` calls it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from helios.runtime.geometry import HistoryRules
from helios.scheduler.cache.matching import first_page
from helios.scheduler.cache.pages import PagePool
from helios.scheduler.cache.rows import RowPool
from helios.scheduler.cache.tree import NO_PAGE, PrefixNode, PrefixTree, Snapshot
from helios.scheduler.cache.values import CacheCounters, CacheListener


class PrefixStore:
    """Pools, tree, and what nobody pins, least recently used first.

    Whoever pins a path lets go of it deepest node first. So, without windows, the first unpinned
    page is always a leaf's: a node was last pinned no earlier than any of its descendants.
    `changes` counts what was published or evicted, to tell whether a match is still good.
    """

    def __init__(
        self,
        pages: PagePool,
        rows: RowPool,
        rules: HistoryRules,
        counters: CacheCounters,
    ) -> None:
        self.pages = pages
        self.rows = rows
        self.rules = rules
        self.counters = counters
        self.tree = PrefixTree()
        self.changes = 0
        self.unpinned_pages: OrderedDict[PrefixNode, None] = OrderedDict()
        self.unpinned_snapshots: OrderedDict[Snapshot, None] = OrderedDict()
        self.listener: CacheListener | None = None

    def first_page(self, endpoint: int) -> int:
        """The first page that tokens from `endpoint` on read."""
        return first_page(endpoint, self.pages.page_tokens, self.rules.window_tokens)

    # ------------------------------------------------------------ pages

    def pin(self, node: PrefixNode) -> None:
        """One more needs the node's page."""
        node.pins += 1
        if node.pins == 1:
            self.unpinned_pages.pop(node, None)

    def unpin(self, node: PrefixNode, *, attached: bool) -> None:
        """One fewer does. Where nobody is left the page is evictable and most recently used, or
        free at once if the node isn't `attached` to the tree any more."""
        node.pins -= 1
        if node.pins or node.page == NO_PAGE:
            return
        if attached:
            self.unpinned_pages[node] = None
        else:
            self._free(node)

    def released_by(self, paths: Iterable[Sequence[PrefixNode]]) -> set[PrefixNode]:
        """The nodes whose pages nobody would need any more, if these pins were let go of."""
        pins = Counter(node for path in paths for node in path)
        return {node for node, count in pins.items() if node.pins == count and node.page != NO_PAGE}

    def put(
        self, parent: PrefixNode, tokens: tuple[int, ...], page: int, *, pins: bool
    ) -> tuple[PrefixNode, bool]:
        """The child of these tokens, pinned once more where the caller `pins` it, and whether
        `page` became its page: it did unless the child has one already. An unpinned page is
        evictable at once."""
        # Most parents have no child yet, and then the tokens needn't be hashed to look for one.
        child = parent.children.get(tokens) if parent.children else None
        if child is None:
            child = self.tree.grow(parent, tokens, NO_PAGE)
        if pins:
            self.pin(child)
        if page == NO_PAGE or child.page != NO_PAGE:
            return child, False
        child.page = page
        self.changes += 1
        if not child.pins:
            self.unpinned_pages[child] = None
        if self.listener is not None:
            self.listener.page_published(child)
        return child, True

    def evict(self, count: int) -> list[tuple[int, PrefixNode]]:
        """Makes up to `count` unpinned pages free, least recently used first, and drops the
        snapshots on their nodes that need them; the pages and whose they were."""
        evicted: list[tuple[int, PrefixNode]] = []
        unpinned, listener, put, prune = (
            self.unpinned_pages, self.listener, self.pages.put, self.tree.prune,
        )  # fmt: skip
        windows = self.rules.window_tokens
        for _ in range(min(count, len(unpinned))):
            node, _ = unpinned.popitem(last=False)
            assert windows or not node.children, "an ancestor was evicted"
            if listener is not None:
                listener.page_evicted(node)
            page, node.page = node.page, NO_PAGE
            evicted.append((page, node))
            put(page)
            if node.snapshots:
                self._drop_needing(node)
            prune(node)
        if evicted:
            self.changes += 1
            self.counters.evicted_pages += len(evicted)
        return evicted

    def _drop_needing(self, node: PrefixNode) -> None:
        """Drops the snapshots on a node that need its page."""
        for snapshot in list(node.snapshots):
            if not snapshot.pins and self.first_page(snapshot.endpoint) < node.depth:
                self.drop(snapshot)

    def _free(self, node: PrefixNode) -> None:
        self.pages.put(node.page)
        node.page = NO_PAGE

    # ------------------------------------------------------------ snapshots

    def pin_snapshot(self, snapshot: Snapshot) -> None:
        """One more needs the snapshot's row."""
        snapshot.pins += 1
        self.unpinned_snapshots.pop(snapshot, None)

    def unpin_snapshot(self, snapshot: Snapshot, *, attached: bool) -> None:
        """One fewer does; see `unpin`."""
        snapshot.pins -= 1
        if snapshot.pins:
            return
        if attached:
            self.unpinned_snapshots[snapshot] = None
        else:
            self.rows.put(snapshot.row)

    def attach(self, node: PrefixNode, partial: tuple[int, ...], row: int) -> bool:
        """Whether a snapshot of these tokens after the node is new; if so it is in the tree now,
        evictable. Where endpoints can be named, one that covers more serves for one that covers
        less: a new one replaces those, and where the tree has one that serves, the longest such
        counts as used and nothing else changes."""
        names = self.rules.names_endpoint
        serving = [
            known
            for known in node.snapshots
            if known.partial == partial or (names and known.partial[: len(partial)] == partial)
        ]
        if serving:
            longest = max(serving, key=lambda known: len(known.partial))
            if not longest.pins:
                self.unpinned_snapshots.move_to_end(longest)
            return False
        for known in list(node.snapshots):
            if names and not known.pins and known.partial == partial[: len(known.partial)]:
                self._remove(known)
        endpoint = node.depth * self.pages.page_tokens + len(partial)
        snapshot = Snapshot(node, partial, endpoint, row)
        node.snapshots.append(snapshot)
        self.unpinned_snapshots[snapshot] = None
        self.changes += 1
        if self.listener is not None:
            self.listener.snapshot_published(snapshot)
        return True

    def drop(self, snapshot: Snapshot) -> None:
        """Evicts an unpinned snapshot."""
        self._remove(snapshot)
        self.tree.prune(snapshot.node)
        self.counters.evicted_snapshots += 1
        self.changes += 1

    def _remove(self, snapshot: Snapshot) -> None:
        if self.listener is not None:
            self.listener.snapshot_evicted(snapshot)
        del self.unpinned_snapshots[snapshot]
        snapshot.node.snapshots.remove(snapshot)
        self.rows.put(snapshot.row)

    # ------------------------------------------------------------ all

    def clear(self) -> None:
        """Forgets the tree. What is unpinned is free now; nodes still pinned live on, detached."""
        for node in self.unpinned_pages:
            self._free(node)
        for snapshot in self.unpinned_snapshots:
            snapshot.node.snapshots.remove(snapshot)
            self.rows.put(snapshot.row)
        self.unpinned_pages.clear()
        self.unpinned_snapshots.clear()
        self.tree.clear()
        self.changes += 1
