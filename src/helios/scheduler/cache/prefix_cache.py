"""The prefix cache: pages and snapshots, who has them, and what of a prompt is there already.

Pure host data: it never touches a device and knows neither slots nor rounds. The scheduler calls
it. Its ways, in order:

- An arriving prompt is matched, and what was found is held: `match`, then `hold` before anything
  else changes the cache. A resident has a hold even where nothing was found.
- Pages and rows that rounds will write to are private: `can_take` and `take`, `can_take_row` and
  `take_row` (what nobody holds is evicted for them), `give_back` and `give_back_row`.
- What completed rounds have written is published: `publish`, after their fence. Published pages
  and snapshots never change.
- A resident ends: private pages are given back and the hold is released, after its last fence.

The tokens of a page, and all before it, say what is in it; so pages are found by tokens alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helios.runtime.geometry import HistoryRules
from helios.scheduler.cache import books, paths
from helios.scheduler.cache.matching import longest
from helios.scheduler.cache.pages import PagePool
from helios.scheduler.cache.rows import NO_ROW, RowPool
from helios.scheduler.cache.store import PrefixStore
from helios.scheduler.cache.tree import PrefixNode
from helios.scheduler.cache.values import (
    CacheCounters,
    CacheListener,
    Evicted,
    Hold,
    Match,
    Published,
)


class PrefixCache:
    """Owns every cache page and snapshot row. Not thread-safe.

    `pages` of `page_tokens` tokens each, `rows` snapshots; `rules` say what can be reused.
    """

    def __init__(
        self,
        pages: int,
        page_tokens: int,
        rows: int = 0,
        rules: HistoryRules | None = None,
    ) -> None:
        self.rules = rules or HistoryRules()
        self.page_tokens = page_tokens
        self.pages = PagePool(pages, page_tokens)
        self.rows = RowPool(rows)
        self.counters = CacheCounters()
        self.store = PrefixStore(self.pages, self.rows, self.rules, self.counters)
        self.holds: set[Hold] = set()
        self._era = 0
        # What made way for pages, until a hold is released: letting go of thousands of tokens takes
        # as long as evicting them, and whoever takes pages is waited for.
        self._evicted: list[tuple[int, PrefixNode]] = []

    # ------------------------------------------------------------ finding and holding

    def match(self, tokens: Sequence[int], limit: int, identity: bytes = b"") -> Match:
        """The longest reusable beginning of `tokens`, at most `limit` tokens of it: a prompt's
        last token must be consumed anew, so `limit` is at most len(tokens) − 1. With a limit of 0
        it is the empty match. Nothing is pinned or counted: ask as often as you like.

        The endpoint is a page's end where pages alone can begin a request (`starts_at_pages`), a
        snapshot's own, or with `names_endpoint` any token up to a snapshot's."""
        assert limit < len(tokens) or not limit, "a match may not cover every token"
        root = self.store.tree.find(identity) if limit > 0 else None
        if root is None:
            return Match(identity, 0, (), NO_ROW, 0, (), None, self.store.changes)
        walk = longest(root, tokens, limit, self.page_tokens, self.rules)
        first = self.first_page(walk.endpoint)
        return Match(
            identity,
            walk.endpoint,
            (0,) * first + tuple([node.page for node in walk.path[first:]]),
            NO_ROW if walk.snapshot is None else walk.snapshot.row,
            first,
            walk.path,
            walk.snapshot,
            self.store.changes,
        )

    def is_current(self, match: Match) -> bool:
        """Whether nothing was published or evicted since: the match can be held, and is still the
        longest. Otherwise match again."""
        return match.changes == self.store.changes

    def hold(self, match: Match, *, counted: bool = True) -> Hold:
        """Pins what was matched; the match must be current. Counts a hit, if it is one."""
        assert self.is_current(match), "a match is held before the cache changes"
        hold = Hold(
            match.identity, match.endpoint, match.first, list(match.path), match.snapshot, self._era
        )
        for node in hold.path[hold.first :]:
            self.store.pin(node)
        if hold.path:
            hold.path[-1].tips += 1
        if hold.snapshot is not None:
            self.store.pin_snapshot(hold.snapshot)
        self.holds.add(hold)
        if counted:
            self.counters.holds += 1
            self.counters.hits += match.endpoint > 0
            self.counters.reused_tokens += match.endpoint
        return hold

    def is_attached(self, hold: Hold) -> bool:
        """Whether the cache hasn't been reset since: what the hold publishes is taken."""
        return hold.era == self._era

    def unpin_row(self, hold: Hold) -> None:
        """The state has been copied out of the held snapshot's row: its fence has passed. The
        snapshot stays published and can be evicted. Does nothing where no row is held."""
        snapshot, hold.snapshot = hold.snapshot, None
        if snapshot is not None:
            self.store.unpin_snapshot(snapshot, attached=self.is_attached(hold))

    def first_page(self, endpoint: int) -> int:
        """The first page that tokens from `endpoint` on read: 0 without windows. A resident may
        give back its private pages before that one, once it has consumed `endpoint` tokens and
        the fences of all earlier rounds have passed."""
        return self.store.first_page(endpoint)

    def slide(self, hold: Hold, endpoint: int) -> None:
        """The resident has consumed `endpoint` tokens and no round in flight reads further back:
        published pages before `first_page(endpoint)` are held no longer. Nothing without windows.
        """
        first = self.first_page(endpoint)
        attached = self.is_attached(hold)
        for node in hold.path[hold.first : first]:
            self.store.unpin(node, attached=attached)
        hold.first = max(first, hold.first)

    def release(self, hold: Hold) -> None:
        """The resident has passed its last fence: what it held is evictable, if nobody else holds
        it, and most recently used. Private pages are the caller's to give back."""
        self._evicted.clear()
        self.holds.remove(hold)
        self.unpin_row(hold)
        attached = self.is_attached(hold)
        for node in reversed(hold.path[hold.first :]):
            self.store.unpin(node, attached=attached)
        if hold.path:
            tip = hold.path[-1]
            tip.tips -= 1
            if attached:
                self.store.tree.prune(tip)
        hold.path = []

    # ------------------------------------------------------------ private pages and rows

    @property
    def evictable_pages(self) -> int:
        """Published pages that nobody holds."""
        return len(self.store.unpinned_pages)

    @property
    def evictable_rows(self) -> int:
        """Published snapshots that nobody holds."""
        return len(self.store.unpinned_snapshots)

    def can_take(
        self, count: int, beside: Match | None = None, released: Iterable[Hold] = ()
    ) -> bool:
        """Whether `count` pages are free or can be evicted; with `beside`, after holding that
        match too; with `released`, if those were released before."""
        coming = self.store.released_by([hold.path[hold.first :] for hold in released])
        ours = 0
        if beside is not None:
            unpinned = self.store.unpinned_pages
            ours = sum(n in unpinned or n in coming for n in beside.path[beside.first :])
        return count <= self.pages.free + self.evictable_pages + len(coming) - ours

    def take(self, count: int, held: list[int]) -> None:
        """Moves `count` pages to the end of `held`, evicting as many as are missing; ask
        `can_take` first. They are private until published or given back."""
        missing = count - self.pages.free
        if missing > 0:
            self._evicted += self.store.evict(missing)
        self.pages.take(count, held)

    def give_back(self, held: list[int]) -> None:
        """Makes every private page of `held` free and empties `held`."""
        self.pages.give_back(held)

    def can_take_row(self) -> bool:
        """Whether a row is free or can be evicted."""
        return self.rows.can_take() or bool(self.store.unpinned_snapshots)

    def take_row(self) -> int:
        """A row to write a snapshot to, evicting the least recently used one if none is free; −1
        where all are held. It is the caller's until published or given back."""
        if not self.can_take_row():
            return NO_ROW
        if not self.rows.can_take():
            self.store.drop(next(iter(self.store.unpinned_snapshots)))
        return self.rows.take()

    def give_back_row(self, row: int) -> None:
        """Makes a private row free."""
        self.rows.put(row)

    # ------------------------------------------------------------ publishing and evicting

    def publish(
        self,
        hold: Hold,
        tokens: Sequence[int],
        endpoint: int,
        pages: Sequence[int],
        row: int = NO_ROW,
    ) -> Published:
        """Gives a resident's whole pages before `endpoint` to the tree, and a snapshot of exactly
        `endpoint` where `row` ≥ 0; the rounds that wrote them have passed their fence.

        `tokens` are the resident's, at least `endpoint` of them; `pages` its page list from the
        first page on. Those before `hold.depth` are published already and not looked at; private
        ones that it has given back (before its window) must be −1. Where the tree has a page with
        the same tokens already, the resident's stays private and is used on; the hold pins the
        tree's. The hold's depth becomes at least `endpoint` // page_tokens. A row isn't taken
        where the tree can serve its endpoint already.

        After a reset (`clear`) an older hold publishes nothing.
        """
        assert hold in self.holds, "published after its release"
        if not self.is_attached(hold):
            return Published((), (), False)
        whole = endpoint // self.page_tokens
        moved, kept = paths.extend(self.store, hold, tokens, pages[:whole])
        taken = row != NO_ROW and paths.attach(self.store, hold, tokens, endpoint, row)
        self.counters.published_pages += len(moved)
        self.counters.duplicate_pages += len(kept)
        self.counters.published_snapshots += taken
        return Published(tuple(moved), tuple(kept), taken)

    def follow(self, hold: Hold, tokens: Sequence[int], endpoint: int) -> None:
        """Deepens the hold along pages before `endpoint` that are in the tree, as far as they are
        there one after the other."""
        assert hold in self.holds, "followed after its release"
        if self.is_attached(hold):
            paths.follow(self.store, hold, tokens, endpoint // self.page_tokens)

    def evict(self, pages: int) -> list[Evicted]:
        """Makes up to `pages` published pages free, those that were used longest ago first; never
        what is held nor, without windows, what leads to a page that is there. Snapshots that need
        an evicted page go with it."""
        return list(map(Evicted._make, self.store.evict(pages)))

    def listen(self, listener: CacheListener) -> None:
        """Tells a second tier of what is published and evicted from now on."""
        self.store.listener = listener

    def clear(self) -> None:
        """Resets the cache: nothing published before matches any more. What nobody holds is free
        now, the rest when its holds are released; those publish nothing from now on."""
        self.store.clear()
        self._era += 1

    # ------------------------------------------------------------ books

    def violations(self, private: Iterable[Iterable[int]], rows: Iterable[int] = ()) -> list[str]:
        """What is wrong with the books, nothing if they balance. `private` are the pages that
        residents have of their own, `rows` those taken and neither published nor given back."""
        return books.violations(self, private, rows)

    def check_books(self, private: Iterable[Iterable[int]], rows: Iterable[int] = ()) -> None:
        """Asserts that there is no violation."""
        found = self.violations(private, rows)
        assert not found, "; ".join(found)
