"""The host-memory tier: bounded, least recently used first."""

from __future__ import annotations

from helios.scheduler.cache.offload.host_tier import ENTRY_NBYTES, HostTier
from tests.scheduler.cache.offload.entries import content_of, page, state

LIMIT = 3 * (100 + ENTRY_NBYTES)


def test_contents_are_kept_within_the_limit_and_the_oldest_goes_first() -> None:
    tier = HostTier(LIMIT)
    for number in range(3):
        tier.put(page(number), content_of(page(number)))
    assert tier.get(page(0).key) == content_of(page(0))  # used
    tier.put(page(1), b"")  # known: used, not replaced
    tier.put(page(3), content_of(page(3)))
    assert [page(n).key in tier for n in range(4)] == [True, True, False, True]
    assert tier.get(page(1).key) == content_of(page(1))
    assert tier.get(page(2).key) is None
    assert (tier.nbytes, len(tier)) == (LIMIT, 3)
    counters = tier.counters
    assert (counters.stored, counters.found, counters.evicted) == (4, 2, 1)


def test_what_is_larger_than_all_is_not_kept() -> None:
    tier = HostTier(LIMIT)
    tier.put(page(0), content_of(page(0)))
    largest = LIMIT - ENTRY_NBYTES
    tier.put(page(1, largest + 1), bytes(largest + 1))
    assert page(1).key not in tier
    assert page(0).key in tier
    tier.put(page(2, largest), bytes(largest))
    assert page(0).key not in tier
    assert tier.nbytes == LIMIT


def test_lengths_of_snapshots_are_known_as_long_as_they_are_there() -> None:
    tier = HostTier(LIMIT)
    tier.put(state(1, node=0, length=3), bytes(100))
    tier.put(state(2, node=0, length=3), bytes(100))
    tier.put(state(3, node=0, length=5), bytes(100))
    assert sorted(tier.lengths_after(page(0).key)) == [3, 5]
    tier.put(page(4), bytes(100))
    assert sorted(tier.lengths_after(page(0).key)) == [3, 5]
    tier.put(page(5), bytes(100))
    assert tier.lengths_after(page(0).key) == [5]
    tier.clear()
    assert (tier.lengths_after(page(0).key), tier.nbytes, len(tier)) == ([], 0, 0)


def test_contents_without_bytes_are_bounded_too() -> None:
    tier = HostTier(LIMIT)
    for number in range(99):
        tier.put(page(number, 0), b"")
    assert len(tier) == LIMIT // ENTRY_NBYTES
