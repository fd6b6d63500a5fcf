"""What passes through the prefix cache's door: matches, holds, and what publishing and evicting
came to. Data only; `PrefixCache` makes and changes them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from helios.dataclass import dataclass
from helios.scheduler.cache.rows import NO_ROW
from helios.scheduler.cache.tree import PrefixNode, Snapshot


@dataclass(frozen=True, slots=True)
class Match:
    """What can be reused of a prompt: its first `endpoint` tokens.

    `pages` are the ids of the endpoint's whole pages in order, to begin a page list with; 0 stands
    for pages that no program reads any more (wholly before the window). `row` is the snapshot to
    restore from, −1 where the pages are enough. The rest is the cache's own.
    """

    identity: bytes
    endpoint: int
    pages: tuple[int, ...]
    row: int
    first: int
    path: tuple[PrefixNode, ...]
    snapshot: Snapshot | None
    changes: int


@dataclass(slots=True, eq=False)
class Hold:
    """A resident's claim on published pages and a snapshot: what is held isn't evicted.

    `endpoint` is the tokens reused at first; `depth` the pages of the path, which publishing
    deepens. The rest is the cache's own: `first` is the first page of the path that is pinned,
    `era` counts the resets before the hold was made.
    """

    identity: bytes
    endpoint: int
    first: int
    path: list[PrefixNode]
    snapshot: Snapshot | None
    era: int

    @property
    def depth(self) -> int:
        """Pages of the path: so many at the start of the resident's page list are published."""
        return len(self.path)

    @property
    def row(self) -> int:
        """The pinned snapshot's row, −1 without one."""
        return NO_ROW if self.snapshot is None else self.snapshot.row


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a resident's pages and row. `moved` are the pages that are the tree's now;
    `kept` those that stay the resident's, because the tree has the same tokens in pages of its
    own. Where `row_taken` is false, a row that was offered stays the caller's."""

    moved: tuple[int, ...]
    kept: tuple[int, ...]
    row_taken: bool


class Evicted(NamedTuple):
    """A page that was evicted, and its former place, with the tokens that lead to it."""

    page: int
    node: PrefixNode


class CacheListener(Protocol):
    """Is told of everything that comes to be published and of what is evicted or replaced, at once:
    an evicted page or row still holds its content during the call. It isn't told what a reset
    forgets. It must not change the cache."""

    def page_published(self, node: PrefixNode) -> None:
        """The node has its page."""

    def page_evicted(self, node: PrefixNode) -> None:
        """The node's page is about to be free."""

    def snapshot_published(self, snapshot: Snapshot) -> None:
        """The snapshot is in the tree."""

    def snapshot_evicted(self, snapshot: Snapshot) -> None:
        """The snapshot's row is about to be free."""


@dataclass(slots=True)
class CacheCounters:
    """Counts since start; they only grow. A hit is a hold with an endpoint above 0, and
    `reused_tokens` the sum of those endpoints; `duplicate_pages` are those that two residents
    prefilled at once."""

    holds: int = 0
    hits: int = 0
    reused_tokens: int = 0
    published_pages: int = 0
    published_snapshots: int = 0
    duplicate_pages: int = 0
    evicted_pages: int = 0
    evicted_snapshots: int = 0
