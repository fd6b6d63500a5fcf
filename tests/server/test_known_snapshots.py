"""Several HTTP processes show counters that never go down, whoever is asked, is silent or dies."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from helios.server.http_snapshot import HttpSnapshot
from helios.server.known_snapshots import KnownSnapshots
from helios.server.metrics import HttpMetrics

PROCESSES = 3


class Process:
    """One of several, as `PeerQuestions` uses what it knows."""

    def __init__(self) -> None:
        self.metrics = HttpMetrics()
        self.known = KnownSnapshots()

    def _take(self) -> None:
        self.known.take(self.metrics.snapshot(None))

    def shows(self, peers: Sequence[Process]) -> HttpSnapshot:
        """A scrape that these peers answer."""
        self._take()
        question = self.known.all()
        here = {self.known.process}
        for peer in peers:
            peer.known.learn(question)
            peer._take()
            here.add(peer.known.process)
            self.known.learn(peer.known.later_than(question))
        return self.known.total(here)


def _responses(snapshot: HttpSnapshot) -> int:
    return sum(sum(statuses.values()) for statuses in snapshot.responses.values())


def test_all_that_answer_are_counted_once() -> None:
    one, two, three = (Process() for _ in range(3))
    for number, process in enumerate((one, two, three), start=1):
        process.metrics.responses[("/ready", 200)] += number
    for asked, others in ((one, (two, three)), (three, (one, two)), (one, (two, three))):
        shown = asked.shows(others)
        assert (shown.processes, _responses(shown)) == (3, 6)


def test_who_is_gone_has_counted_and_holds_nothing() -> None:
    one, two = Process(), Process()
    two.metrics.responses[("/ready", 200)] += 5
    assert one.shows([two]).usage.resident_nbytes > one.shows([]).usage.resident_nbytes
    shown = one.shows([])
    assert (shown.processes, _responses(shown)) == (1, 5)
    assert shown.usage.cpu_s > one.metrics.snapshot(None).usage.cpu_s


def test_whoever_takes_a_scrape_passes_on_what_it_knows() -> None:
    one, two, gone, new = (Process() for _ in range(4))
    gone.metrics.responses[("/ready", 200)] += 7
    assert _responses(one.shows([two, gone])) == 7
    # `one` knew it from its answer, `new` from the question, and `two` from the next one's.
    assert _responses(one.shows([new])) == 7
    assert _responses(new.shows([])) == 7
    assert _responses(new.shows([two])) == 7
    assert _responses(two.shows([])) == 7


@given(st.data())
def test_what_is_shown_never_goes_down(data: st.DataObject) -> None:
    """As long as one thing goes wrong between two scrapes: some are silent, or one dies, whoever
    it is, and another takes its place. Any process takes a scrape."""
    processes = [Process() for _ in range(PROCESSES)]
    places = st.sampled_from(range(PROCESSES))
    # Who took the last scrape, and so knows everything that it showed; None if it has died.
    teller: int | None = 0
    last = 0
    for _ in range(data.draw(st.integers(1, 12))):
        processes[data.draw(places)].metrics.responses[("/ready", 200)] += data.draw(
            st.integers(0, 5)
        )
        asked = data.draw(places)
        others = [number for number in range(PROCESSES) if number != asked]
        answering = others
        if teller is not None:
            answering = data.draw(st.lists(st.sampled_from(others), unique=True))
            if teller not in (asked, *answering):
                answering.append(teller)
        shown = processes[asked].shows([processes[number] for number in answering])
        assert _responses(shown) >= last
        last = _responses(shown)
        teller = asked
        if answering:
            dying = data.draw(st.none() | places)
            if dying is not None:
                processes[dying] = Process()
                teller = None if dying == asked else asked
