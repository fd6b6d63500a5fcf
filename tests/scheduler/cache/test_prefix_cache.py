"""The prefix cache's door, case by case: what a prompt finds, who keeps which page, what is evicted
first. The whole of it against a naive model is in test_model.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helios.runtime.geometry import HistoryRules
from helios.scheduler.cache import Hold, PrefixCache, Published
from helios.scheduler.cache.tree import PrefixNode, Snapshot

PAGES_ALONE = HistoryRules(starts_at_pages=True)
PAGED = HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True)
EXACT = HistoryRules(restores=True)
SIZE = 4


class Resident:
    """What the scheduler keeps for a request: tokens, page list, private pages, hold."""

    def __init__(self, cache: PrefixCache, tokens: Sequence[int], identity: bytes = b"") -> None:
        self.cache = cache
        self.tokens = list(tokens)
        self.match = cache.match(self.tokens, len(tokens) - 1, identity)
        self.hold: Hold = cache.hold(self.match)
        self.pages = list(self.match.pages)
        self.private: list[int] = []
        missing = cache.pages.needed_for(len(tokens)) - len(self.pages)
        assert cache.can_take(missing)
        cache.take(missing, self.private)
        self.pages += self.private

    def publish(self, endpoint: int, row: int = -1) -> Published:
        published = self.cache.publish(self.hold, self.tokens, endpoint, self.pages, row)
        for page in published.moved:
            self.private.remove(page)
        assert set(published.kept) <= set(self.private)
        if row >= 0 and not published.row_taken:
            self.cache.give_back_row(row)
        return published

    def leave(self) -> None:
        self.cache.give_back(self.private)
        self.cache.release(self.hold)


def served(
    cache: PrefixCache,
    tokens: Sequence[int],
    endpoint: int | None = None,
    *,
    snapshot: bool = False,
) -> list[int]:
    """Prefills, publishes and leaves; the page list."""
    one = Resident(cache, tokens)
    end = len(tokens) if endpoint is None else endpoint
    one.publish(end, cache.take_row() if snapshot else -1)
    one.leave()
    cache.check_books([])
    return one.pages


def test_whole_pages_are_found_again() -> None:
    cache = PrefixCache(8, SIZE, rules=PAGES_ALONE)
    prompt = list(range(11))
    pages = served(cache, prompt)
    assert cache.match(prompt, 10).endpoint == 8
    assert cache.match(prompt, 10).pages == tuple(pages[:2])
    assert cache.match(prompt, 7).endpoint == 4
    assert cache.match([*prompt[:6], 99, 99, 99], 8).endpoint == 4
    assert cache.match(prompt, 10, b"another adapter").endpoint == 0
    assert cache.pages.free == 6
    assert cache.counters.published_pages == 2


def test_every_boundary_of_a_paged_model() -> None:
    """With a snapshot at the last prompt token every limit finds all that was computed before
    it in the last page, and whole pages elsewhere."""
    cache = PrefixCache(16, SIZE, 4, PAGED)
    prompt = list(range(40, 51))
    served(cache, prompt, 10, snapshot=True)
    found = [cache.match(prompt, limit).endpoint for limit in range(11)]
    assert found == [0, 0, 0, 0, 4, 4, 4, 4, 8, 9, 10]
    rows = [cache.match(prompt, limit).row >= 0 for limit in range(11)]
    assert rows == [False] * 9 + [True] * 2
    # The tokens after the snapshot's page don't matter, those in it do.
    assert cache.match([*prompt[:9], 7, 7, 7], 11).endpoint == 9
    assert cache.match([*prompt[:8], 7, 7, 7], 10).endpoint == 8
    assert cache.match(prompt[:10], 9).endpoint == 9


def test_a_page_aligned_prompt_is_cached_but_for_its_last_token() -> None:
    cache = PrefixCache(16, SIZE, 4, PAGED)
    prompt = list(range(8))
    one = Resident(cache, prompt)
    one.publish(8)
    assert one.hold.depth == 2
    one.publish(7, cache.take_row())
    assert one.hold.depth == 2
    one.leave()
    match = cache.match(prompt, 7)
    assert (match.endpoint, len(match.pages), match.row >= 0) == (7, 1, True)
    assert cache.match([*prompt, 9], 8).endpoint == 8


def test_without_named_endpoints_only_the_exact_one_is_found() -> None:
    cache = PrefixCache(16, SIZE, 4, EXACT)
    prompt = list(range(11))
    served(cache, prompt, 6, snapshot=True)
    found = [cache.match(prompt, limit).endpoint for limit in range(11)]
    assert found == [0] * 6 + [6] * 5
    assert cache.match([*prompt[:5], 99, 99, 99], 7).endpoint == 0


def test_exact_snapshots_at_a_page_end_and_on_no_page_at_all() -> None:
    cache = PrefixCache(16, SIZE, 4, EXACT)
    one = Resident(cache, range(9))
    assert one.publish(2, cache.take_row()).row_taken
    assert one.publish(8, cache.take_row()).row_taken
    one.leave()
    found = [cache.match(list(range(9)), limit).endpoint for limit in range(9)]
    assert found == [0, 0, 2, 2, 2, 2, 2, 2, 8]


def test_a_row_that_serves_nothing_new_is_not_taken() -> None:
    cache = PrefixCache(16, SIZE, 4, PAGED)
    one = Resident(cache, range(11))
    assert one.publish(10, cache.take_row()).row_taken
    assert not one.publish(10, cache.take_row()).row_taken  # the same
    assert not one.publish(9, cache.take_row()).row_taken  # a part of it
    assert not one.publish(8, cache.take_row()).row_taken  # pages alone will do
    assert not one.publish(0, cache.take_row()).row_taken
    assert one.publish(11, cache.take_row()).row_taken  # more: it replaces the shorter one
    assert cache.evictable_rows == 1
    assert cache.rows.free == 3
    one.leave()
    cache.check_books([])


def test_two_snapshots_share_a_node_and_the_fitting_one_is_found() -> None:
    cache = PrefixCache(16, SIZE, 4, PAGED)
    stem = [1, 2, 3, 4, 5]
    served(cache, [*stem, 6, 0], 6, snapshot=True)
    served(cache, [*stem, 7, 0], 6, snapshot=True)
    assert cache.evictable_rows == 2
    first, second = cache.match([*stem, 6, 0], 6), cache.match([*stem, 7, 0], 6)
    assert first.endpoint == second.endpoint == 6
    assert first.row != second.row
    assert cache.match([*stem, 8, 0], 6).endpoint == 5


def test_two_residents_publish_the_same_pages() -> None:
    """The second one's pages stay its own; its chain goes on under the first one's."""
    cache = PrefixCache(16, SIZE, rules=PAGES_ALONE)
    first, second = Resident(cache, range(9)), Resident(cache, [*range(8), 90, 91, 92, 93, 94])
    assert first.publish(8).moved == tuple(first.pages[:2])
    published = second.publish(12)
    assert published.kept == tuple(second.pages[:2])
    assert published.moved == (second.pages[2],)
    assert second.hold.depth == 3
    assert cache.counters.duplicate_pages == 2
    cache.check_books([first.private, second.private])
    found = cache.match(second.tokens, 12)
    assert found.pages == (*first.pages[:2], second.pages[2])
    # What the second resident's chain hangs on is held by it, though it reads its own pages.
    first.leave()
    assert cache.evict(8) == []
    second.leave()
    assert cache.pages.free + cache.evictable_pages == 16
    assert cache.evictable_pages == 3


def test_what_is_held_is_not_evicted_nor_what_leads_to_it() -> None:
    cache = PrefixCache(8, SIZE, rules=PAGES_ALONE)
    long = list(range(17))
    pages = served(cache, long)
    hold = cache.hold(cache.match(long, 8))
    assert not cache.can_take(7)
    assert [found.page for found in cache.evict(8)] == [pages[3], pages[2]]
    assert cache.match(long, 16).endpoint == 8
    cache.release(hold)
    assert [found.page for found in cache.evict(8)] == [pages[1], pages[0]]
    assert cache.pages.free == 8
    assert not list(cache.store.tree)


def test_a_match_that_is_held_at_once_takes_its_pages_from_eviction() -> None:
    """The pages that a request is about to hold can't be evicted for it."""
    cache = PrefixCache(4, SIZE, rules=PAGES_ALONE)
    prompt = list(range(9))
    served(cache, prompt)
    served(cache, [50, 51, 52, 53, 54])
    match = cache.match(prompt, 8)
    assert cache.can_take(4)
    assert cache.can_take(2, match)
    assert not cache.can_take(3, match)
    hold = cache.hold(match)
    private: list[int] = []
    cache.take(2, private)
    assert cache.match(prompt, 8).pages == match.pages
    assert cache.match([50, 51, 52, 53, 54], 4).endpoint == 0
    cache.check_books([private])
    cache.give_back(private)
    cache.release(hold)


def test_a_match_is_current_until_something_is_published_or_evicted() -> None:
    cache = PrefixCache(8, SIZE, rules=PAGES_ALONE)
    served(cache, range(5))
    match = cache.match(range(5), 4)
    other = Resident(cache, [9] * 5)
    assert cache.is_current(match)
    other.publish(4)
    assert not cache.is_current(match)
    match = cache.match(range(5), 4)
    cache.evict(1)
    assert not cache.is_current(match)
    with pytest.raises(AssertionError, match="held before"):
        cache.hold(match)
    other.leave()


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(16, SIZE, rules=PAGES_ALONE)
    prompts = [[10 * n + i for i in range(5)] for n in range(4)]
    pages = [served(cache, prompt)[0] for prompt in prompts]
    cache.release(cache.hold(cache.match(prompts[1], 4)))  # used again
    cache.match(prompts[0], 4)  # asking is not using
    assert [found.page for found in cache.evict(4)] == [pages[0], pages[2], pages[3], pages[1]]


def test_snapshots_have_their_own_order_and_leave_the_pages() -> None:
    cache = PrefixCache(16, SIZE, 2, PAGED)
    prompts = [[10 * n + i for i in range(7)] for n in range(3)]
    served(cache, prompts[0], 6, snapshot=True)
    served(cache, prompts[1], 6, snapshot=True)
    hold = cache.hold(cache.match(prompts[0], 6))
    assert hold.row >= 0
    served(cache, prompts[2], 6, snapshot=True)
    assert cache.match(prompts[1], 6).endpoint == 4  # its snapshot went, not its page
    assert cache.match(prompts[0], 6).endpoint == 6
    assert cache.counters.evicted_snapshots == 1
    # After the restore's fence the row isn't needed any more.
    assert cache.take_row() >= 0
    assert cache.take_row() == -1
    cache.unpin_row(hold)
    assert hold.row == -1
    assert cache.take_row() >= 0
    cache.release(hold)
    cache.check_books([], [0, 1])


def test_a_snapshot_that_is_offered_again_counts_as_used() -> None:
    cache = PrefixCache(16, SIZE, 2, PAGED)
    prompts = [[10 * n + i for i in range(7)] for n in range(2)]
    served(cache, prompts[0], 6, snapshot=True)
    served(cache, prompts[1], 6, snapshot=True)
    again = Resident(cache, prompts[0])
    cache.unpin_row(again.hold)
    cache.release(cache.hold(cache.match(prompts[1], 6)))
    row = cache.match(prompts[1], 6).row
    assert cache.store.attach(again.hold.path[0], (4, 5), 99) is False
    assert cache.take_row() == row
    again.leave()
    cache.check_books([], [row])


def test_a_snapshot_goes_with_the_pages_it_needs() -> None:
    cache = PrefixCache(8, SIZE, 2, PAGED)
    served(cache, range(7), 6, snapshot=True)
    assert cache.rows.free == 1
    cache.evict(1)
    assert cache.rows.free == 2
    assert cache.match(list(range(7)), 6).endpoint == 0
    # One that needs no page stays.
    served(cache, [9, 9, 9, 9], 3, snapshot=True)
    cache.evict(8)
    assert cache.match([9, 9, 9, 9], 3).endpoint == 3


# ------------------------------------------------------------ windows

WINDOW = HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True, window_tokens=6)


def test_a_match_needs_only_the_window() -> None:
    """Pages before it may be missing, and stand as 0 in the page list."""
    cache = PrefixCache(16, SIZE, 2, WINDOW)
    one = Resident(cache, range(21))
    cache.slide(one.hold, 20)
    assert cache.first_page(20) == 3
    gone = one.private[:3]
    del one.private[:3]
    cache.give_back(gone)
    one.pages[:3] = [-1, -1, -1]
    one.publish(20)
    cache.check_books([one.private])
    match = cache.match(list(range(21)), 20)
    assert match.endpoint == 20
    assert match.pages == (0, 0, 0, *one.pages[3:5])
    assert cache.match(list(range(21)), 19).endpoint == 0  # 16 needs page 2, which is gone
    one.leave()
    assert cache.evictable_pages == 2


def test_a_hole_is_filled_by_whoever_has_the_page() -> None:
    cache = PrefixCache(16, SIZE, 2, WINDOW)
    first, second = Resident(cache, range(21)), Resident(cache, range(21))
    cache.slide(first.hold, 20)
    cache.give_back([first.private.pop(0)])
    first.pages[0] = -1
    first.publish(20)
    published = second.publish(12)
    assert published.moved == (second.pages[0],)
    assert published.kept == tuple(second.pages[1:3])
    assert cache.match(list(range(21)), 8).endpoint == 8
    first.leave()
    second.leave()
    cache.check_books([])


def test_published_pages_that_slide_out_of_the_window_are_evictable() -> None:
    cache = PrefixCache(16, SIZE, 2, WINDOW)
    one = Resident(cache, range(21))
    one.publish(20)
    assert cache.evictable_pages == 0
    cache.slide(one.hold, 12)
    assert cache.evictable_pages == 1
    cache.slide(one.hold, 20)
    assert cache.evictable_pages == 3
    assert [found.page for found in cache.evict(9)] == one.pages[:3]
    cache.check_books([one.private])
    assert cache.match(list(range(21)), 20).endpoint == 20
    hold = cache.hold(cache.match(list(range(21)), 20))
    one.leave()
    assert cache.evictable_pages == 0
    cache.release(hold)
    assert cache.evictable_pages == 2
    cache.evict(1)  # the last page: nothing can be found below the holes any more
    assert cache.match(list(range(21)), 20).endpoint == 0
    cache.evict(1)
    assert not list(cache.store.tree)


def test_a_snapshot_whose_page_was_evicted_from_under_it_is_not_found() -> None:
    cache = PrefixCache(16, SIZE, 2, WINDOW)
    served(cache, range(11), 10, snapshot=True)  # needs tokens 4 … 9: page 1
    assert cache.match(list(range(11)), 10).endpoint == 10
    assert cache.evict(1)[0].node.depth == 2
    assert cache.rows.free == 2
    served(cache, range(11), 10, snapshot=True)
    cache.release(cache.hold(cache.match(list(range(11)), 10)))
    assert cache.evict(1)[0].node.depth == 1  # outside the snapshot's window
    assert cache.match(list(range(11)), 10).endpoint == 10
    assert cache.match(list(range(11)), 9).endpoint == 0  # this one needs token 3
    cache.check_books([])


# ------------------------------------------------------------ resets


def test_a_reset_forgets_what_is_held_as_well() -> None:
    cache = PrefixCache(8, SIZE, 2, PAGED)
    prompt = list(range(11))
    served(cache, prompt, 10, snapshot=True)
    one, two = Resident(cache, prompt), Resident(cache, prompt)
    assert one.match.endpoint == 10
    cache.clear()
    assert cache.match(prompt, 10).endpoint == 0
    cache.check_books([one.private, two.private])
    assert one.publish(11) == Published((), (), False)
    assert not one.publish(10, cache.take_row()).row_taken
    one.leave()
    assert cache.pages.free == 8 - 2 - 1  # two's path and its own page
    assert cache.evictable_pages == 0
    two.leave()
    assert cache.pages.free == 8
    assert cache.rows.free == 2
    # A new resident publishes as ever.
    served(cache, prompt, 10, snapshot=True)
    assert cache.match(prompt, 10).endpoint == 10


def test_identities_share_nothing() -> None:
    cache = PrefixCache(8, SIZE, 2, PAGED)
    one = Resident(cache, range(7), b"one")
    one.publish(6, cache.take_row())
    one.leave()
    assert cache.match(list(range(7)), 6, b"two").endpoint == 0
    assert cache.match(list(range(7)), 6, b"one").endpoint == 6
    two = Resident(cache, range(7), b"two")
    assert two.publish(6).kept == ()
    two.leave()
    cache.evict(8)
    assert not list(cache.store.tree)  # no root is left behind


class Listener:
    """Writes down what it is told, with whether the page or row was free during the call."""

    def __init__(self, cache: PrefixCache) -> None:
        self.cache = cache
        self.heard: list[tuple[str, int, bool]] = []
        cache.listen(self)

    def page_published(self, node: PrefixNode) -> None:
        self._hear("page", node.page, node in set(self.cache.store.tree))

    def page_evicted(self, node: PrefixNode) -> None:
        self._hear("no page", node.page, self.cache.pages.free == 0)

    def snapshot_published(self, snapshot: Snapshot) -> None:
        self._hear("row", snapshot.row, snapshot in snapshot.node.snapshots)

    def snapshot_evicted(self, snapshot: Snapshot) -> None:
        self._hear("no row", snapshot.row, self.cache.rows.free == 0)

    def _hear(self, what: str, number: int, as_it_should: bool) -> None:
        self.heard.append((what, number, as_it_should))


def test_a_listener_hears_of_everything_in_time() -> None:
    cache = PrefixCache(2, SIZE, 1, PAGED)
    listener = Listener(cache)
    pages = served(cache, range(7), 6, snapshot=True)
    assert listener.heard == [("page", pages[0], True), ("row", 0, True)]
    del listener.heard[:]
    private: list[int] = []
    cache.take(1, private)
    assert listener.heard == []
    cache.take(1, private)
    assert listener.heard == [("no page", pages[0], True), ("no row", 0, True)]


def test_following_deepens_a_hold_along_what_is_there() -> None:
    cache = PrefixCache(8, SIZE, 2, PAGED)
    served(cache, range(13))
    hold = cache.hold(cache.match(range(13), 0), counted=False)
    assert cache.counters.hits == 0
    cache.follow(hold, range(13), 7)
    assert hold.depth == 1
    assert cache.evictable_pages == 2
    cache.follow(hold, [*range(9), 99, 99, 99, 99], 13)
    assert hold.depth == 2
    cache.check_books([])
    cache.follow(hold, range(13), 12)
    assert cache.evict(8) == []
    cache.release(hold)
    assert len(cache.evict(8)) == 3
    cache.check_books([])


def test_counters_count_what_was_held_not_what_was_asked() -> None:
    cache = PrefixCache(8, SIZE, 2, PAGED)
    served(cache, range(11), 10, snapshot=True)
    for _ in range(3):
        cache.match(list(range(11)), 10)
    Resident(cache, range(11)).leave()
    counters = cache.counters
    assert (counters.holds, counters.hits, counters.reused_tokens) == (2, 1, 10)
    assert (counters.published_pages, counters.published_snapshots) == (2, 1)
    assert (counters.evicted_pages, counters.evicted_snapshots) == (0, 0)


def test_violations_are_sentences() -> None:
    cache = PrefixCache(8, SIZE, 2, PAGED)
    one = Resident(cache, range(11))
    one.publish(10, cache.take_row())
    assert cache.violations([one.private]) == []
    assert "page books" in cache.violations([])[0]
    assert "row books" in cache.violations([one.private], [1])[0]
    one.hold.path[0].pins += 1
    assert any("pins" in found for found in cache.violations([one.private]))


def test_a_snapshot_that_needs_no_page_outlives_its_node_s() -> None:
    narrow = HistoryRules(restores=True, names_endpoint=True, window_tokens=2)
    cache = PrefixCache(8, SIZE, 2, narrow)
    served(cache, range(8), 7, snapshot=True)  # needs tokens 5 and 6, which its row has
    cache.evict(1)
    assert cache.match(list(range(8)), 7).endpoint == 7
    assert cache.match(list(range(8)), 6).endpoint == 6
    assert cache.match(list(range(8)), 5).endpoint == 0  # this one needs token 3
    cache.check_books([])
    cache.store.drop(cache.store.tree.find(b"").children[0, 1, 2, 3].snapshots[0])
    assert not list(cache.store.tree)


def test_a_snapshot_that_is_being_restored_is_not_replaced() -> None:
    cache = PrefixCache(8, SIZE, 3, PAGED)
    served(cache, range(7), 5, snapshot=True)
    restoring = Resident(cache, range(7))
    assert restoring.hold.row >= 0
    assert restoring.publish(6, cache.take_row()).row_taken
    cache.check_books([restoring.private])
    assert cache.evictable_rows == 1
    restoring.leave()
    assert cache.evictable_rows == 2


def both_snapshots() -> PrefixCache:
    """A cache with a snapshot of 5 tokens that was being restored from when one of 6 came: both
    are in the tree, and nobody holds them."""
    cache = PrefixCache(12, SIZE, 3, PAGED)
    served(cache, range(7), 5, snapshot=True)
    restoring = Resident(cache, range(7))
    assert restoring.publish(6, cache.take_row()).row_taken
    restoring.leave()
    assert cache.evictable_rows == 2
    return cache


def test_a_snapshot_that_is_not_taken_replaces_none() -> None:
    """One that was matched could be held although its row is free again."""
    cache = both_snapshots()
    offering = Resident(cache, range(7))
    cache.unpin_row(offering.hold)
    match = cache.match(range(6), 5)
    assert not offering.publish(6, cache.take_row()).row_taken
    assert cache.is_current(match)
    hold = cache.hold(match)
    assert hold.row == match.row >= 0
    cache.check_books([offering.private])
    cache.release(hold)
    offering.leave()


def test_of_those_that_serve_an_offered_snapshot_the_longest_counts_as_used() -> None:
    cache = both_snapshots()
    longest = cache.match(range(7), 6).row
    offering = Resident(cache, range(7))
    cache.unpin_row(offering.hold)
    shorter = cache.match([0, 1, 2, 3, 4, 9], 5)
    cache.release(cache.hold(shorter))  # the longest is the least recently used now
    assert not offering.publish(5, cache.take_row()).row_taken
    private = [cache.take_row(), cache.take_row()]
    assert private[1] == shorter.row != longest
    assert cache.match(range(7), 6).row == longest
    offering.leave()
    cache.check_books([], private)


def test_a_path_without_pages_goes_with_its_last_hold() -> None:
    cache = PrefixCache(8, SIZE, 2, WINDOW)
    one = Resident(cache, range(21))
    one.publish(8)
    cache.slide(one.hold, 20)
    cache.evict(2)
    cache.check_books([one.private])
    one.leave()
    assert not list(cache.store.tree)
