"""Whatever residents do in whatever order, the prefix cache agrees with the naive one: what is
found, who keeps which page, what is evicted. And what is found holds what it should: each page and
row remembers the tokens that were written to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from helios.runtime.geometry import HistoryRules
from helios.scheduler.cache import Hold, PrefixCache
from tests.scheduler.cache.naive import NaiveCache, NaiveHold

RULES = [
    HistoryRules(starts_at_pages=True),
    HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True),
    HistoryRules(restores=True, names_endpoint=True),
    HistoryRules(restores=True),
]
# Prompts that have a lot in common: zeros, but for a one somewhere, or nowhere.
TOKENS = st.builds(
    lambda length, one: tuple(int(index == one) for index in range(length)),
    st.integers(1, 13),
    st.sampled_from([99, 99, 2, 5, 8]),
)
IDENTITIES = st.sampled_from([b"", b"adapter"])


@dataclass(eq=False)
class Resident:
    """`done` tokens have been computed; `pages` is the page list, −1 for what was given back."""

    identity: bytes
    tokens: tuple[int, ...]
    hold: Hold
    naive: NaiveHold
    pages: list[int]
    done: int
    private: list[int] = field(default_factory=list)


class PrefixCacheMachine(RuleBasedStateMachine):
    """Few tokens, pages and rows, so that everything happens to everybody."""

    @initialize(
        pages=st.integers(2, 12),
        size=st.sampled_from([1, 2, 3, 4, 4]),
        rows=st.sampled_from([0, 1, 2, 3, 3]),
        rules=st.sampled_from(RULES),
        window=st.sampled_from([0, 0, 1, 3, 5]),
    )
    def start(self, pages: int, size: int, rows: int, rules: HistoryRules, window: int) -> None:
        self.rules = HistoryRules(
            rules.starts_at_pages, rules.restores, rules.names_endpoint, window_tokens=window
        )
        self.size = size
        self.cache = PrefixCache(pages, size, rows if rules.restores else 0, self.rules)
        self.naive = NaiveCache(size, self.rules)
        self.residents: list[Resident] = []
        # What was written last to each page and row: the identity and all tokens up to its end.
        self.page_content: dict[int, tuple[bytes, tuple[int, ...]]] = {}
        self.row_content: dict[int, tuple[bytes, tuple[int, ...]]] = {}
        self.private_rows: list[int] = []
        self.seen: dict[tuple[tuple[int, ...], bytes], None] = {}

    def one(self, data: st.DataObject) -> Resident:
        return data.draw(st.sampled_from(self.residents))

    def take(self, count: int, held: list[int]) -> bool:
        free = self.cache.pages.free
        assert self.cache.can_take(count) == (count <= free + len(self.naive.page_order))
        if not self.cache.can_take(count):
            return False
        self.cache.take(count, held)
        self.naive.evict(max(0, count - free))
        return True

    @invariant()
    def finds_what_is_there(self) -> None:
        """Prompts that were there before, and others that begin like them."""
        for tokens, identity in list(self.seen)[-6:]:
            self.look((*tokens, 0), identity, len(tokens))
            self.look(tokens, identity, len(tokens) - 2)

    @rule(tokens=TOKENS, identity=IDENTITIES, cut=st.integers(0, 13))
    def look(self, tokens: tuple[int, ...], identity: bytes, cut: int) -> None:
        limit = max(0, min(cut, len(tokens) - 1))
        match = self.cache.match(tokens, limit, identity)
        endpoint, rows = self.naive.match(identity, tokens, limit)
        assert match.endpoint == endpoint
        assert match.row in rows
        assert len(match.pages) == endpoint // self.size
        for index in range(self.naive.first_page(endpoint), len(match.pages)):
            written = self.page_content[match.pages[index]]
            assert written == (identity, tokens[: (index + 1) * self.size])
        if match.row >= 0:
            owner, covered = self.row_content[match.row]
            assert (owner, covered[:endpoint]) == (identity, tokens[:endpoint])

    @rule(tokens=TOKENS, identity=IDENTITIES)
    def arrive(self, tokens: tuple[int, ...], identity: bytes) -> None:
        self.seen.pop((tokens, identity), None)
        self.seen[tokens, identity] = None
        match = self.cache.match(tokens, len(tokens) - 1, identity)
        missing = -(-len(tokens) // self.size) - len(match.pages)
        fits = self.cache.can_take(missing, match)
        hold = self.cache.hold(match)
        end = match.endpoint // self.size
        naive = NaiveHold(
            identity,
            [tokens[: (index + 1) * self.size] for index in range(end)],
            self.naive.first_page(match.endpoint),
            match.row,
        )
        self.naive.holds.append(naive)
        self.naive.settle()
        resident = Resident(identity, tokens, hold, naive, list(match.pages), match.endpoint)
        self.residents.append(resident)
        assert self.take(missing, resident.private) == fits
        if not fits:
            self.drop(resident)
            return
        resident.pages += resident.private

    @rule(
        tokens=TOKENS,
        identity=IDENTITIES,
        before_the_end=st.integers(0, 3),
        snapshot=st.booleans(),
        leaves=st.booleans(),
    )
    def serve(
        self,
        tokens: tuple[int, ...],
        identity: bytes,
        before_the_end: int,
        snapshot: bool,
        leaves: bool,
    ) -> None:
        """What happens most: a request comes, is computed and published, and often leaves."""
        count = len(self.residents)
        self.arrive(tokens, identity)
        if len(self.residents) == count:
            return
        resident = self.residents[-1]
        self.advance(
            resident, len(tokens) if self.rules.names_endpoint else len(tokens) - before_the_end
        )
        self.publish_some(resident, len(tokens) - before_the_end, snapshot)
        if leaves:
            self.drop(resident)

    @precondition(lambda self: self.residents)
    @rule(data=st.data(), count=st.integers(1, 8))
    def compute(self, data: st.DataObject, count: int) -> None:
        """Rounds complete."""
        resident = self.one(data)
        self.advance(resident, resident.done + count)

    def advance(self, resident: Resident, done: int) -> None:
        """A private page holds what was computed when it is full."""
        resident.done = max(resident.done, min(done, len(resident.tokens)))
        for index, page in enumerate(resident.pages):
            end = (index + 1) * self.size
            if page in resident.private and end <= resident.done:
                self.page_content[page] = (resident.identity, resident.tokens[:end])

    @precondition(lambda self: self.residents)
    @rule(data=st.data())
    def unpin_row(self, data: st.DataObject) -> None:
        self.restored(self.one(data))

    def restored(self, resident: Resident) -> None:
        self.cache.unpin_row(resident.hold)
        resident.naive.row = -1
        self.naive.settle()

    @precondition(lambda self: self.residents and self.rules.window_tokens)
    @rule(data=st.data())
    def slide(self, data: st.DataObject) -> None:
        resident = self.one(data)
        first = self.cache.first_page(resident.done)
        assert first == self.naive.first_page(resident.done)
        for index in range(min(first, len(resident.pages))):
            if resident.pages[index] in resident.private and index >= resident.hold.depth:
                resident.private.remove(resident.pages[index])
                self.cache.give_back([resident.pages[index]])
                resident.pages[index] = -1
        before = self.naive.pinned_pages()
        self.cache.slide(resident.hold, resident.done)
        resident.naive.first = max(resident.naive.first, first)
        # Sliding lets go of the oldest page first.
        gone = before - self.naive.pinned_pages()
        self.naive.page_order += sorted(
            (key for key in gone if key in self.naive.pages), key=lambda key: len(key[1])
        )
        self.naive.settle()

    @precondition(lambda self: self.residents)
    @rule(data=st.data(), cut=st.integers(0, 14), snapshot=st.booleans())
    def publish(self, data: st.DataObject, cut: int, snapshot: bool) -> None:
        self.publish_some(self.one(data), cut, snapshot)

    def publish_some(self, resident: Resident, cut: int, snapshot: bool) -> None:
        endpoint = max(0, min(cut, resident.done))
        row = -1
        if not self.rules.names_endpoint and endpoint != resident.done:
            snapshot = False  # only the live state can be saved
        if snapshot and self.rules.restores:
            row = self.take_row()
        if row >= 0:
            self.row_content[row] = (resident.identity, resident.tokens[:endpoint])
        expected: tuple[list[int], list[int], bool] = ([], [], False)
        if resident.naive.attached:
            expected = self.naive.publish(
                resident.naive, resident.tokens, endpoint, resident.pages, row
            )
        published = self.cache.publish(
            resident.hold, resident.tokens, endpoint, resident.pages, row
        )
        assert (list(published.moved), list(published.kept)) == expected[:2]
        assert published.row_taken == expected[2]
        for page in published.moved:
            resident.private.remove(page)
        if row >= 0 and not published.row_taken:
            self.cache.give_back_row(row)

    def take_row(self) -> int:
        free = self.cache.rows.free
        assert self.cache.can_take_row() == bool(free or self.naive.row_order)
        row = self.cache.take_row()
        if not free and self.naive.row_order:
            self.naive.evict_row()
        return row

    @rule()
    def take_a_row_for_long(self) -> None:
        row = self.take_row()
        if row >= 0:
            self.private_rows.append(row)

    @precondition(lambda self: self.private_rows)
    @rule()
    def give_a_row_back(self) -> None:
        self.cache.give_back_row(self.private_rows.pop())

    @precondition(lambda self: self.residents)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.drop(self.one(data))

    def drop(self, resident: Resident) -> None:
        self.residents.remove(resident)
        self.cache.give_back(resident.private)
        self.cache.release(resident.hold)
        resident.naive.row = -1
        self.naive.settle()
        self.naive.holds.remove(resident.naive)
        self.naive.settle()

    @rule(count=st.integers(0, 4))
    def evict(self, count: int) -> None:
        evicted = [found.page for found in self.cache.evict(count)]
        assert evicted == self.naive.evict(count)

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.naive.clear()

    @invariant()
    def books_balance(self) -> None:
        self.cache.check_books([r.private for r in self.residents], self.private_rows)
        stored = {
            (node.identity, _tokens_to(node)): node.page
            for node in self.cache.store.tree
            if node.page >= 0
        }
        assert stored == self.naive.pages
        rows = {
            (node.identity, (*_tokens_to(node), *snapshot.partial)): snapshot.row
            for node in self.cache.store.tree
            for snapshot in node.snapshots
        }
        assert rows == self.naive.rows
        assert self.cache.evictable_pages == len(self.naive.page_order)
        assert self.cache.evictable_rows == len(self.naive.row_order)

    def teardown(self) -> None:
        if not hasattr(self, "cache"):
            return
        while self.residents:
            self.drop(self.residents[0])
        assert self.cache.pages.free + self.cache.evictable_pages == self.cache.pages.pages
        self.cache.clear()
        assert self.cache.pages.free == self.cache.pages.pages
        assert self.cache.rows.free + len(self.private_rows) == self.cache.rows.rows
        assert not list(self.cache.store.tree)


def _tokens_to(node: object) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    while node.parent is not None:  # type: ignore[attr-defined]
        tokens = (*node.tokens, *tokens)  # type: ignore[attr-defined]
        node = node.parent  # type: ignore[attr-defined]
    return tokens


PrefixCacheMachine.TestCase.settings = settings(
    max_examples=300, stateful_step_count=50, deadline=None
)
TestPrefixCache = PrefixCacheMachine.TestCase


def test_a_snapshot_comes_while_a_shorter_one_of_the_same_page_is_there_too() -> None:
    """An example that was found once: two snapshots that would do, the shorter one first."""
    machine = PrefixCacheMachine()
    machine.start(pages=3, size=3, rows=3, rules=RULES[1], window=0)
    for tokens, before_the_end in [((0,), 0), ((0, 0), 0), ((0, 0, 0, 0, 0), 3)]:
        machine.serve(tokens, b"", before_the_end, snapshot=True, leaves=True)
        machine.books_balance()
        machine.finds_what_is_there()
    machine.teardown()
