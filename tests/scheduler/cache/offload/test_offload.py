"""The second tier behind the prefix cache: what was published is found again after eviction and
after a restart, is what it was, and is what the next tokens need."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helios.runtime.geometry import HistoryRules
from helios.runtime.rounds import SamplingParameters
from helios.scheduler.cache.offload.keys import KeyChain
from helios.scheduler.requests import Progress, Request
from tests.scheduler.cache.offload.device import (
    EXACT,
    PAGED,
    PAGES_ALONE,
    ROOMY,
    WAIT_MS,
    Machine,
    computed,
)

PROMPT = list(range(100, 115))  # three whole pages and three tokens
WINDOW = HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True, window_tokens=6)


def test_a_prompt_cached_yesterday_is_reused_today(tmp_path: Path) -> None:
    yesterday = Machine(PAGED, folder=tmp_path)
    assert yesterday.serve(PROMPT, 14, snapshot=True) == 0
    yesterday.close()
    today = Machine(PAGED, folder=tmp_path)
    assert today.check(PROMPT) == 0
    assert today.bring_in(PROMPT) == 14  # all but the last token
    assert today.bring_in([*PROMPT[:9], 1, 1, 1, 1]) == 8
    assert today.serve(PROMPT, 14) == 14
    today.close()


@pytest.mark.parametrize("limit", range(1, 15))
def test_every_boundary_of_a_prompt_is_found_again(tmp_path: Path, limit: int) -> None:
    """By pages, and where it is reached by the snapshot."""
    yesterday = Machine(PAGED, folder=tmp_path)
    yesterday.serve(PROMPT, 14, snapshot=True)
    yesterday.close()
    today = Machine(PAGED, folder=tmp_path)
    assert today.bring_in([*PROMPT[:limit], 7]) == (14 if limit == 14 else limit // 4 * 4)
    today.close()


@pytest.mark.parametrize("host_nbytes", [0, ROOMY])
def test_evicted_pages_come_back(tmp_path: Path, host_nbytes: int) -> None:
    """From host memory or from files; nothing that is on the device is fetched."""
    machine = Machine(PAGES_ALONE, host_nbytes=host_nbytes, folder=tmp_path, pages=4)
    assert machine.serve(PROMPT, 15) == 0
    assert len(machine.cache.evict(2)) == 2
    assert machine.check(PROMPT) == 4
    machine.offload.files.flush()  # type: ignore[union-attr]
    assert machine.bring_in(PROMPT) == 12
    read = machine.offload.files.counters.read  # type: ignore[union-attr]
    assert read == (0 if host_nbytes else 2)
    machine.close()


def test_host_memory_alone_will_do() -> None:
    machine = Machine(PAGED, host_nbytes=ROOMY, rows=1)
    machine.serve(PROMPT, 14, snapshot=True)
    machine.cache.evict(64)
    assert machine.check(PROMPT) == 0
    assert machine.bring_in(PROMPT) == 14
    # Nothing is copied a second time.
    reads = machine.memory.page_reads
    machine.cache.evict(64)
    assert machine.memory.page_reads == reads
    assert machine.bring_in(PROMPT) == 14


def test_without_named_endpoints_a_snapshot_is_needed_and_must_be_exact(tmp_path: Path) -> None:
    yesterday = Machine(EXACT, folder=tmp_path)
    yesterday.serve(PROMPT, 6, snapshot=True)
    yesterday.serve(PROMPT, 12, snapshot=True)
    yesterday.close()
    today = Machine(EXACT, folder=tmp_path)
    assert today.bring_in([*PROMPT[:6], 1, 1]) == 6
    assert today.bring_in([*PROMPT[:5], 1, 1, 1]) == 0
    assert today.bring_in(PROMPT) == 12
    assert today.bring_in([*PROMPT[:12], 1]) == 12
    assert today.bring_in([*PROMPT[:11], 1, 1]) == 6
    today.close()


def test_a_snapshot_without_whole_pages_is_found(tmp_path: Path) -> None:
    yesterday = Machine(EXACT, folder=tmp_path)
    yesterday.serve([1, 2, 3, 4], 3, snapshot=True)
    yesterday.close()
    today = Machine(EXACT, folder=tmp_path)
    assert today.bring_in([1, 2, 3, 9]) == 3
    assert today.bring_in([1, 2, 9, 9]) == 0
    today.close()


def test_with_windows_only_the_window_is_fetched(tmp_path: Path) -> None:
    yesterday = Machine(WINDOW, folder=tmp_path)
    yesterday.serve(PROMPT, 14, snapshot=True)
    yesterday.close()
    today = Machine(WINDOW, folder=tmp_path)
    assert today.bring_in(PROMPT) == 14
    assert today.offload.files.counters.read == 2  # type: ignore[union-attr]  # page 2, snapshot
    assert today.cache.match(PROMPT, 14).pages[:2] == (0, 0)
    # A shorter beginning needs earlier pages.
    assert today.bring_in(PROMPT[:10]) == 8
    assert today.offload.files.counters.read == 4  # type: ignore[union-attr]
    today.close()


def test_with_windows_pages_before_it_may_be_missing(tmp_path: Path) -> None:
    yesterday = Machine(WINDOW, folder=tmp_path)
    yesterday.serve(PROMPT, 12)
    yesterday.close()
    first = yesterday.cache.store.tree.find(b"").children[tuple(PROMPT[:4])]  # type: ignore[union-attr]
    assert [path.unlink() for path in tmp_path.glob(f"{first.key.hex()}*")] == [None]
    today = Machine(WINDOW, folder=tmp_path)
    assert today.bring_in(PROMPT[:9]) == 0  # 8 reads token 2
    assert today.bring_in(PROMPT) == 12
    today.close()


@pytest.mark.parametrize(
    "other",
    [
        KeyChain(core_digest=b"another", target="t", kernel_path="k", layout_digest=b"l"),
        KeyChain(core_digest=b"core", target="t", kernel_path="k2", layout_digest=b"l"),
        KeyChain(core_digest=b"core", target="t", kernel_path="k", layout_digest=b"l2"),
    ],
)
def test_another_core_path_or_layout_finds_nothing(tmp_path: Path, other: KeyChain) -> None:
    yesterday = Machine(PAGED, folder=tmp_path)
    yesterday.serve(PROMPT, 14, snapshot=True)
    yesterday.close()
    today = Machine(PAGED, folder=tmp_path, chain=other)
    assert today.bring_in(PROMPT) == 0
    today.serve(PROMPT, 14, snapshot=True)
    today.close()
    # Both live in one folder.
    assert len(list(tmp_path.iterdir())) == 8


def test_identities_have_keys_of_their_own() -> None:
    machine = Machine(PAGES_ALONE, host_nbytes=ROOMY)
    hold = machine.cache.hold(machine.cache.match(PROMPT, 14, b"adapter"))
    pages: list[int] = []
    machine.cache.take(3, pages)
    machine.cache.publish(hold, PROMPT, 12, pages)
    machine.cache.release(hold)
    machine.cache.evict(64)
    assert len(machine.offload.host) == 3  # type: ignore[arg-type]
    assert machine.bring_in(PROMPT) == 0


def test_a_damaged_file_costs_its_page_and_those_after_it(tmp_path: Path) -> None:
    yesterday = Machine(PAGES_ALONE, folder=tmp_path)
    yesterday.serve(PROMPT, 12)
    yesterday.close()
    second = yesterday.cache.match(PROMPT, 12).path[1]
    (path,) = tmp_path.glob(f"{second.key.hex()}*")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    today = Machine(PAGES_ALONE, folder=tmp_path)
    assert today.serve(PROMPT, 12) == 4
    today.close()
    # What was computed anew took its place.
    assert Machine(PAGES_ALONE, folder=tmp_path).bring_in(PROMPT) == 12


def test_pages_that_find_no_room_are_left_where_they_are(tmp_path: Path) -> None:
    yesterday = Machine(PAGES_ALONE, folder=tmp_path)
    yesterday.serve(PROMPT, 12)
    yesterday.close()
    today = Machine(PAGES_ALONE, folder=tmp_path, pages=4)
    taken: list[int] = []
    today.cache.take(4, taken)
    request = Request(0, tuple(PROMPT), 1, SamplingParameters())
    today.fetching.begin(Progress(request, 0, PROMPT), 0, 14)
    while today.fetching.go_on():
        today.fetching.wait(WAIT_MS)
    today.cache.check_books([taken])
    assert today.check(PROMPT) == 0
    today.cache.give_back(taken)
    assert today.bring_in(PROMPT) == 12
    today.close()


def test_a_cancelled_fetch_brings_nothing_more(tmp_path: Path) -> None:
    yesterday = Machine(PAGES_ALONE, folder=tmp_path)
    yesterday.serve(PROMPT, 12)
    yesterday.close()
    today = Machine(PAGES_ALONE, folder=tmp_path)
    arrivals = today.offload.find(PROMPT, 0, 14)
    assert arrivals is not None
    arrivals.wait(WAIT_MS)
    first = arrivals.poll()
    assert first is not None
    assert (first.endpoint, first.is_snapshot) == (4, False)
    arrivals.cancel()
    assert arrivals.finished
    assert arrivals.poll() is None
    today.close()


def test_with_windows_the_longest_beginning_that_is_whole_is_fetched(tmp_path: Path) -> None:
    yesterday = Machine(WINDOW, folder=tmp_path)
    yesterday.serve(PROMPT, 12)
    yesterday.close()
    second = yesterday.cache.match(PROMPT, 12).path[1]
    assert [path.unlink() for path in tmp_path.glob(f"{second.key.hex()}*")] == [None]
    today = Machine(WINDOW, folder=tmp_path)
    assert today.bring_in(PROMPT) == 4
    today.close()


def test_a_snapshot_of_the_whole_prompt_is_of_no_use(tmp_path: Path) -> None:
    yesterday = Machine(EXACT, folder=tmp_path)
    yesterday.serve(PROMPT, 6, snapshot=True)
    yesterday.close()
    today = Machine(EXACT, folder=tmp_path)
    assert today.offload.find(PROMPT[:6], 0, 5) is None
    assert today.offload.find(PROMPT[:7], 0, 6) is not None
    assert today.offload.find(PROMPT[:7], 6, 6) is None
    today.close()


def test_after_a_reset_pages_count_as_gone_from_the_device(tmp_path: Path) -> None:
    machine = Machine(PAGES_ALONE, folder=tmp_path)
    machine.serve(PROMPT, 12)
    machine.cache.clear()
    machine.offload.reset()
    machine.offload.files.flush()  # type: ignore[union-attr]
    other = Machine(PAGES_ALONE, folder=tmp_path)
    other.serve(PROMPT, 12)
    other.close()
    machine.offload.files.look_again()  # type: ignore[union-attr]
    machine.offload.files.flush()  # type: ignore[union-attr]
    assert machine.bring_in(PROMPT) == 12
    machine.close()


# ------------------------------------------------------------ copying behind


class HalfRead:
    """Holds the writer's thread in the middle of a page until the test lets it go on."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.reached = threading.Event()
        self.go_on = threading.Event()
        machine.memory.half_way = self._stop

    def _stop(self) -> None:
        if threading.current_thread().name == "helios-cache-writer":
            self.reached.set()
            assert self.go_on.wait(WAIT_MS / 1000)


def test_a_page_that_is_evicted_while_it_is_copied_is_copied_at_once(tmp_path: Path) -> None:
    machine = Machine(PAGES_ALONE, folder=tmp_path)
    copying = HalfRead(machine)
    machine.serve(PROMPT[:5], 4)
    assert copying.reached.wait(WAIT_MS / 1000)
    (evicted,) = machine.cache.evict(1)
    machine.memory.pages[evicted.page] = computed(b"something else", [], 64)
    copying.go_on.set()
    machine.close()
    today = Machine(PAGES_ALONE, folder=tmp_path)
    assert today.bring_in(PROMPT[:5]) == 4
    today.close()


def test_a_place_that_is_published_again_while_it_is_copied_is_not_mixed_up(
    tmp_path: Path,
) -> None:
    """Evicted, used for something else, and published again in the same place: the copy that
    began before must not be kept."""
    machine = Machine(PAGES_ALONE, folder=tmp_path, pages=2)
    copying = HalfRead(machine)
    machine.serve(PROMPT[:5], 4)
    assert copying.reached.wait(WAIT_MS / 1000)
    place = machine.cache.match(PROMPT[:5], 4).pages[0]
    machine.offload.page_evicted(machine.cache.match(PROMPT[:5], 4).path[0])
    right = machine.memory.pages[place]
    machine.memory.pages[place] = computed(b"something else", [], 64)
    machine.offload.page_published(machine.cache.match(PROMPT[:5], 4).path[0])
    copying.go_on.set()
    machine.offload.files.flush()  # type: ignore[union-attr]
    machine.memory.pages[place] = right
    machine.close()
    today = Machine(PAGES_ALONE, folder=tmp_path)
    assert today.bring_in(PROMPT[:5]) == 4
    today.close()


def test_published_pages_are_copied_by_the_writer_alone(tmp_path: Path) -> None:
    machine = Machine(PAGES_ALONE, folder=tmp_path)
    threads: set[str] = set()
    machine.memory.half_way = lambda: threads.add(threading.current_thread().name)
    machine.serve(PROMPT, 12)
    machine.offload.files.flush()  # type: ignore[union-attr]
    machine.cache.evict(64)
    assert threads == {"helios-cache-writer"}
    assert machine.memory.page_reads == 3
    machine.close()


def test_a_reset_forgets_all_tiers(tmp_path: Path) -> None:
    machine = Machine(PAGED, host_nbytes=ROOMY, folder=tmp_path)
    machine.serve(PROMPT, 14, snapshot=True)
    machine.cache.evict(1)
    machine.cache.clear()
    machine.offload.reset()
    assert machine.bring_in(PROMPT) == 0
    machine.offload.files.flush()  # type: ignore[union-attr]
    assert list(tmp_path.iterdir()) == []
    machine.serve(PROMPT, 14, snapshot=True)
    machine.close()
    assert len(list(tmp_path.iterdir())) == 4


def test_what_a_reset_left_uncopied_is_not_copied_any_more(tmp_path: Path) -> None:
    machine = Machine(PAGES_ALONE, folder=tmp_path)
    copying = HalfRead(machine)
    machine.serve(PROMPT, 12)
    assert copying.reached.wait(WAIT_MS / 1000)
    machine.cache.clear()
    machine.offload.reset()
    copying.go_on.set()
    machine.close()
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------ everything together

STEMS = ([1] * 12, [2] * 12, [1] * 6 + [3] * 6)
ACTS = st.one_of(
    st.tuples(
        st.just("serve"),
        st.sampled_from(STEMS),
        st.integers(2, 12),
        st.integers(1, 3),
        st.booleans(),
    ),
    st.tuples(st.just("evict"), st.integers(1, 8)),
    st.tuples(st.just("restart")),
)


def brute_force(
    served: Sequence[tuple[tuple[int, ...], int, bool]], tokens: Sequence[int], rules: HistoryRules
) -> int:
    """The longest endpoint that everything ever published could serve."""
    best = 0
    for limit in range(1, len(tokens)):
        for covered, endpoint, snapshot in served:
            if limit % 4 == 0 and rules.starts_at_pages and endpoint // 4 * 4 >= limit:
                best = limit if tuple(tokens[:limit]) == covered[:limit] else best
            if snapshot and endpoint == limit and tuple(tokens[:limit]) == covered[:limit]:
                best = limit
    return best


@settings(max_examples=60)
@given(
    rules=st.sampled_from([PAGES_ALONE, PAGED, EXACT]),
    acts=st.lists(ACTS, max_size=12),
    with_host=st.booleans(),
)
@example(
    rules=PAGED,
    acts=[
        ("serve", STEMS[0], 6, 1, True),
        ("serve", STEMS[0], 5, 1, True),
        ("restart",),
        ("serve", STEMS[0], 5, 1, False),
    ],
    with_host=False,
)
def test_nothing_that_was_published_is_lost_or_mixed_up(
    rules: HistoryRules, acts: list[tuple[object, ...]], with_host: bool
) -> None:
    """With room in the files everything published is found again, whatever was evicted and however
    often the engine was restarted; and all that is found is what it should be."""
    with tempfile.TemporaryDirectory() as folder:

        def start() -> Machine:
            host = 4096 if with_host else 0
            return Machine(rules, pages=6, rows=2, host_nbytes=host, folder=Path(folder))

        machine = start()
        served: list[tuple[tuple[int, ...], int, bool]] = []
        for act in acts:
            if act[0] == "evict":
                machine.cache.evict(int(act[1]))  # type: ignore[call-overload]
            elif act[0] == "restart":
                machine.close()
                machine = start()
            else:
                _, stem, length, before_the_end, snapshot = act
                tokens = [*stem[:length], 9]  # type: ignore[index]
                endpoint = max(0, len(tokens) - before_the_end)  # type: ignore[operator]
                machine.offload.files.flush()  # type: ignore[union-attr]
                reused = machine.serve(tokens, endpoint, snapshot=bool(snapshot))
                expected = brute_force(served, tokens, rules)
                assert reused >= expected if rules.names_endpoint else reused == expected
                # One that isn't needed on the device isn't kept for later either.
                served.append((tuple(tokens), endpoint, machine.row_taken))
        machine.close()


def test_closing_waits_for_a_copy_and_nothing_is_copied_afterwards(tmp_path: Path) -> None:
    """The device may be gone then, even where the disk was too slow for what waited."""
    machine = Machine(PAGES_ALONE, folder=tmp_path)
    copying = HalfRead(machine)
    machine.serve(PROMPT, 12)
    assert copying.reached.wait(WAIT_MS / 1000)
    files = machine.offload.files
    assert files is not None
    files.close(within_s=0.0)
    closing = threading.Thread(target=machine.close)
    closing.start()
    copying.go_on.set()
    closing.join(WAIT_MS / 1000)
    assert not closing.is_alive()
    reads = machine.memory.page_reads
    for entry in [machine.offload._page_entry(n) for n in machine.cache.match(PROMPT, 12).path]:
        assert machine.offload._copy_published(entry) is None
    files.flush()
    assert (reads, machine.memory.page_reads, files.dropped) == (1, 1, 2)


def test_counts_say_what_went_where_and_what_is_kept(tmp_path: Path) -> None:
    machine = Machine(PAGED, host_nbytes=ROOMY, folder=tmp_path)
    machine.serve(PROMPT, 14, snapshot=True)
    machine.offload.files.flush()  # type: ignore[union-attr]
    machine.cache.evict(64)
    assert machine.bring_in(PROMPT) == 14
    host, files = machine.offload.counts()["host"], machine.offload.counts()["files"]
    assert (host.stored, host.stored_nbytes, host.entries) == (4, 3 * 64 + 32, 4)
    assert (host.restored, host.restored_nbytes, host.limit_nbytes) == (4, 3 * 64 + 32, ROOMY)
    assert (files.stored, files.stored_nbytes, files.entries) == (4, 3 * 64 + 32, 4)
    assert (files.restored, files.damaged, files.failures, files.dropped) == (0, 0, 0, 0)
    assert files.nbytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    machine.close()
    (damaged, *_) = tmp_path.iterdir()
    damaged.write_bytes(bytes(damaged.stat().st_size))
    today = Machine(PAGED, folder=tmp_path)
    today.bring_in(PROMPT)
    again = today.offload.counts()
    assert again.keys() == {"files"}
    assert again["files"].damaged == 1
    assert again["files"].restored_nbytes <= 3 * 64
    today.close()
