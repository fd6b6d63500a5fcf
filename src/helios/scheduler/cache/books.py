"""The prefix cache's books: every page and row is in one place, and the counts agree.

Read-only, and slow (it walks the whole tree): for an idle worker and for tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from helios.scheduler.cache.tree import NO_PAGE, PrefixNode, Snapshot

if TYPE_CHECKING:
    from helios.scheduler.cache.prefix_cache import PrefixCache


def violations(
    cache: PrefixCache, private: Iterable[Iterable[int]], rows: Iterable[int]
) -> list[str]:
    """What is wrong, one sentence each."""
    attached = list(cache.store.tree)
    known = set(attached)
    # After a reset, what older holds still pin is in no tree.
    nodes = set(attached)
    snapshots: set[Snapshot] = {s for node in attached for s in node.snapshots}
    for hold in cache.holds:
        nodes.update(hold.path)
        if hold.snapshot is not None:
            snapshots.add(hold.snapshot)
    found: list[str] = []
    taken = [page for pages in private for page in pages]
    taken += [node.page for node in nodes if node.page != NO_PAGE]
    held_rows = [*rows, *(snapshot.row for snapshot in snapshots)]
    found += _balance(lambda: cache.pages.check_books([taken]))
    found += _balance(lambda: cache.rows.check_books(held_rows))
    found += [
        f"a hold of {hold.depth} pages is on nodes that were removed"
        for hold in cache.holds
        if cache.is_attached(hold) and not known.issuperset(hold.path)
    ]
    found += _pins(cache, nodes, snapshots)
    for node in attached:
        found += _shape(cache, node, known)
    return found


def _balance(check: Callable[[], None]) -> list[str]:
    """What a pool says against its books."""
    try:
        check()
    except AssertionError as error:
        return [str(error)]
    return []


def _pins(cache: PrefixCache, nodes: set[PrefixNode], snapshots: set[Snapshot]) -> list[str]:
    """Pins are those of the holds, and what has none waits for eviction."""
    found: list[str] = []
    pins = Counter(node for hold in cache.holds for node in hold.path[hold.first :])
    tips = Counter(hold.path[-1] for hold in cache.holds if hold.path)
    rows = Counter(hold.snapshot for hold in cache.holds if hold.snapshot is not None)
    for node in nodes:
        if node.pins != pins[node] or node.tips != tips[node]:
            found.append(
                f"the page {node.page} at depth {node.depth} counts {node.pins} pins and "
                f"{node.tips} tips of {pins[node]} and {tips[node]}"
            )
        if (node.page != NO_PAGE and not node.pins) != (node in cache.store.unpinned_pages):
            found.append(f"the page {node.page} with {node.pins} pins is evictable or not, wrongly")
    for snapshot in snapshots:
        if snapshot.pins != rows[snapshot]:
            found.append(f"row {snapshot.row} counts {snapshot.pins} pins of {rows[snapshot]}")
        if (not snapshot.pins) != (snapshot in cache.store.unpinned_snapshots):
            found.append(f"row {snapshot.row} with {snapshot.pins} pins is evictable, or not")
    lost = len(cache.store.unpinned_pages.keys() - nodes) + len(
        cache.store.unpinned_snapshots.keys() - snapshots
    )
    if lost:
        found.append(f"{lost} evictable pages and snapshots are in no tree")
    return found


def _shape(cache: PrefixCache, node: PrefixNode, known: set[PrefixNode]) -> list[str]:
    """Links and token counts."""
    found: list[str] = []
    size = cache.page_tokens
    if node.parent is None:
        if node.page != NO_PAGE or node.depth or node.tokens:
            found.append("a root has a page")
        if not (node.children or node.snapshots):
            found.append("an empty root was kept")
    else:
        if node.parent not in known or node.parent.children.get(node.tokens) is not node:
            found.append(f"the page {node.page} at depth {node.depth} isn't its parent's child")
        if len(node.tokens) != size or node.depth != node.parent.depth + 1:
            found.append(f"the page {node.page} has a wrong length or depth")
        if node.page == NO_PAGE and not cache.rules.window_tokens:
            found.append(f"a page is missing at depth {node.depth}, and there are no windows")
        if node.page == NO_PAGE and not (node.children or node.snapshots or node.tips):
            found.append(f"an empty node was kept at depth {node.depth}")
    for snapshot in node.snapshots:
        if snapshot.node is not node or len(snapshot.partial) >= size:
            found.append(f"the snapshot in row {snapshot.row} hangs on the wrong node")
        if snapshot.endpoint != node.depth * size + len(snapshot.partial):
            found.append(f"the snapshot in row {snapshot.row} has a wrong endpoint")
    return found
