"""How a hold's path through the prefix tree grows: by publishing pages, by following those that
are there. Functions on the store and a hold; `PrefixCache` calls them.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.scheduler.cache.store import PrefixStore
from helios.scheduler.cache.tree import NO_PAGE, PrefixNode
from helios.scheduler.cache.values import Hold


def extend(
    store: PrefixStore, hold: Hold, tokens: Sequence[int], pages: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Deepens the path to the whole of the page list `pages`, which is deeper than it is: (pages
    that are the tree's now, pages that it has already)."""
    moved: list[int] = []
    kept: list[int] = []
    depth, whole, size = hold.depth, len(pages), store.pages.page_tokens
    if depth >= whole:
        return moved, kept
    path, first, put, windows = hold.path, hold.first, store.put, store.rules.window_tokens
    node = path[-1] if path else store.tree.root(hold.identity)
    node.tips -= bool(path)
    # The same iterator page by page: zip makes the tuples without slices.
    for page_tokens in zip(*[iter(tokens[depth * size : whole * size])] * size, strict=True):
        page = pages[depth]
        assert page != NO_PAGE or windows, "a page is missing without windows"
        node, taken = put(node, page_tokens, page, pins=depth >= first)
        if taken:
            moved.append(page)
        elif page != NO_PAGE:
            kept.append(page)
        path.append(node)
        depth += 1
    node.tips += 1
    return moved, kept


def follow(store: PrefixStore, hold: Hold, tokens: Sequence[int], depth: int) -> None:
    """Deepens the path, to `depth` at most, while the next page is there."""
    node = hold.path[-1] if hold.path else store.tree.find(hold.identity)
    while node is not None and hold.depth < depth:
        node = node.children.get(_page_tokens(store, tokens, hold.depth))
        if node is None or node.page == NO_PAGE:
            return
        _step(store, hold, node)


def attach(store: PrefixStore, hold: Hold, tokens: Sequence[int], endpoint: int, row: int) -> bool:
    """Whether a snapshot at `endpoint`, on the path, is needed; if so it is the tree's now."""
    whole, length = divmod(endpoint, store.pages.page_tokens)
    if not endpoint or (not length and store.rules.starts_at_pages):
        return False
    node = hold.path[whole - 1] if whole else store.tree.root(hold.identity)
    return store.attach(node, tuple(tokens[endpoint - length : endpoint]), row)


def _page_tokens(store: PrefixStore, tokens: Sequence[int], index: int) -> tuple[int, ...]:
    size = store.pages.page_tokens
    return tuple(tokens[index * size : (index + 1) * size])


def _step(store: PrefixStore, hold: Hold, node: PrefixNode) -> None:
    """One node deeper."""
    if hold.depth >= hold.first:
        store.pin(node)
    if hold.path:
        hold.path[-1].tips -= 1
    node.tips += 1
    hold.path.append(node)
