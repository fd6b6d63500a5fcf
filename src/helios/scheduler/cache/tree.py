"""The prefix tree: published pages and snapshots by the tokens that lead to them.

Data and links alone. Who may change a node, what is pinned and what is evicted is
`PrefixCache`'s to know; how a prompt walks down is `matching`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

NO_PAGE: Final = -1


class Snapshot:
    """State at an exact endpoint: `partial` are the tokens after the node's pages (fewer than a
    page), `row` is where the state lies, `pins` the residents that are being restored from it."""

    __slots__ = ("endpoint", "node", "partial", "pins", "row")

    def __init__(self, node: PrefixNode, partial: tuple[int, ...], endpoint: int, row: int) -> None:
        self.node = node
        self.partial = partial
        self.endpoint = endpoint
        self.row = row
        self.pins = 0


class PrefixNode:
    """One page of tokens after the parent's.

    `depth` counts pages from the root, which has depth 0 and no page. `page` is `NO_PAGE` for a
    hole: a page before some resident's window that nobody kept. `pins` counts the holds that need
    the page, `tips` those whose path ends here.
    """

    __slots__ = (
        "children",
        "depth",
        "identity",
        "key",
        "page",
        "parent",
        "pins",
        "snapshots",
        "tips",
        "tokens",
    )

    def __init__(
        self, identity: bytes, parent: PrefixNode | None, tokens: tuple[int, ...], page: int
    ) -> None:
        self.identity = identity
        self.parent = parent
        self.tokens = tokens
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.page = page
        self.key = b""  # a second tier's name for the page, once it has asked
        self.pins = 0
        self.tips = 0
        self.children: dict[tuple[int, ...], PrefixNode] = {}
        self.snapshots: list[Snapshot] = []


class PrefixTree:
    """A root for each cache identity that has anything published under it."""

    def __init__(self) -> None:
        self._roots: dict[bytes, PrefixNode] = {}

    def find(self, identity: bytes) -> PrefixNode | None:
        """The root of an identity, if anything is published under it."""
        return self._roots.get(identity)

    def root(self, identity: bytes) -> PrefixNode:
        """The root of an identity; made where there is none. It stays once it has a child or a
        snapshot: add one, or call `prune`."""
        node = self._roots.get(identity)
        if node is None:
            node = self._roots[identity] = PrefixNode(identity, None, (), NO_PAGE)
        return node

    def grow(self, parent: PrefixNode, tokens: tuple[int, ...], page: int) -> PrefixNode:
        """A new child."""
        child = PrefixNode(parent.identity, parent, tokens, page)
        parent.children[tokens] = child
        return child

    def prune(self, node: PrefixNode) -> None:
        """Removes the node and its ancestors as far as they hold and support nothing."""
        while not (node.children or node.snapshots or node.tips or node.page != NO_PAGE):
            parent = node.parent
            if parent is None:
                if self._roots.get(node.identity) is node:
                    del self._roots[node.identity]
                return
            children = parent.children
            if len(children) == 1 and next(iter(children.values())) is node:
                children.clear()  # an only child's tokens needn't be hashed
            elif children.get(node.tokens) is node:
                del children[node.tokens]
            node = parent

    def clear(self) -> None:
        """Forgets every root. Nodes that are still held go on existing, unreachable."""
        self._roots = {}

    def __iter__(self) -> Iterator[PrefixNode]:
        """Every node, roots included, parents before children."""
        waiting = list(self._roots.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())
