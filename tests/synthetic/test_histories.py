"""Every kind of history through the same host code: crowds, reuse at each boundary, conversations,
small caches. Each answer must be what the request's tokens alone make of it."""

from __future__ import annotations

import pytest

from helios.scheduler import Finish, SchedulerOptions
from tests.synthetic.driving import Serving, few_pages
from tests.synthetic.histories import HISTORIES, PAGE_TOKENS, VOCABULARY, History
from tests.synthetic.model import SLOTS

BASE = tuple((5 * i + 2) % VOCABULARY for i in range(13))
OTHER = tuple((7 * i + 1) % VOCABULARY for i in range(13))

each_history = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)


@each_history
@pytest.mark.clause("CACHE-1", "CACHE-2", "CACHE-4")
def test_crowd(history: History) -> None:
    serving = Serving(history)
    for number in range(2 * SLOTS):
        prompt = tuple((7 * number + i) % VOCABULARY for i in range(3 + 2 * number))
        serving.submit(prompt, 2 + number, seed=number)
    serving.drain()
    for number in serving.requests:
        serving.check(number)


@each_history
@pytest.mark.parametrize("cut", range(1, len(BASE) + 1))
@pytest.mark.clause("CACHE-4", "CACHE-7")
def test_shared_prefix(history: History, cut: int) -> None:
    """The second prompt shares `cut` tokens with the first: it gets its own answer, and begins
    from no less than what was published of the shared part."""
    serving = Serving(history)
    serving.submit(BASE, 3)
    serving.drain()
    second = serving.submit(BASE[:cut] + OTHER[cut:], 4, seed=2)
    before = serving.device.tokens_consumed
    serving.drain()
    serving.check(second)
    consumed = serving.device.tokens_consumed - before
    reused = len(BASE) + serving.requests[second].output_limit - 1 - consumed
    assert reused == reusable(history, cut)
    assert serving.got[second].reused == reused


def reusable(history: History, cut: int) -> int:
    """Tokens of a 13-token prompt that one sharing `cut` of them begins with: whole pages where
    pages are enough, and the snapshot that was taken before its last token."""
    snapshot = len(BASE) - 1
    if history.partial_pages and cut >= snapshot:
        return snapshot
    if history.row_state:
        return 0
    return min(cut, snapshot) // PAGE_TOKENS * PAGE_TOKENS


@each_history
@pytest.mark.clause("CACHE-7")
def test_conversation(history: History) -> None:
    """Each turn's prompt is the one before, its answer, and more: at most the last page's tokens
    are prefilled again, or none where snapshots hold partial pages."""
    serving = Serving(history)
    context = BASE[:5]
    for turn in range(4):
        number = serving.submit(context, 3)
        before = serving.device.tokens_consumed
        serving.drain()
        serving.check(number)
        if turn:
            new = serving.device.tokens_consumed - before
            # The last answer's last token was never consumed; two tokens of this prompt are new.
            expected = 3 + 2 if history.partial_pages else 3 + 2 + PAGE_TOKENS - 1
            assert new <= expected
        context = (*context, *serving.got[number].tokens, *OTHER[2 * turn : 2 * turn + 2])


@pytest.mark.parametrize("history", [h for h in HISTORIES if h.paged], ids=lambda h: h.name)
@pytest.mark.clause("CACHE-4", "CACHE-8")
def test_preemption(history: History) -> None:
    """The cache holds about one context and a half: requests push each other out and come back."""
    serving = Serving(history, capacities=few_pages(history, 14))
    for number in range(SLOTS):
        prompt = tuple((3 * number + i) % VOCABULARY for i in range(9))
        serving.submit(prompt, 20, seed=number)
    serving.drain()
    assert serving.scheduler.counters.preemptions or history.frees_pages
    for number in serving.requests:
        serving.check(number)
        assert serving.got[number].finish is Finish.LIMIT


@each_history
def test_reuse_switched_off(history: History) -> None:
    serving = Serving(history, options=SchedulerOptions(prefix_reuse=False))
    for _ in range(2):
        before = serving.device.tokens_consumed
        number = serving.submit(BASE, 3)
        serving.drain()
        serving.check(number)
        assert serving.device.tokens_consumed - before == len(BASE) + 2


@pytest.mark.clause("CACHE-4")
def test_window_gives_pages_back() -> None:
    """A request longer than its window holds a window's pages, not a context's."""
    history = next(h for h in HISTORIES if h.name == "window")
    serving = Serving(history, options=SchedulerOptions(prefix_reuse=False))
    number = serving.submit(BASE, 27)
    pages = serving.runtime.geometry.cache_pages
    most = 0
    while not serving.scheduler.idle:
        serving.turn()
        most = max(most, pages - serving.scheduler.pages.free)
    serving.check(number)
    # The window's pages, one being left and one being filled, and those of the prompt's chunk.
    assert most <= -(-len(BASE) // PAGE_TOKENS) + 2 < (len(BASE) + 27) // PAGE_TOKENS


@pytest.mark.clause("FRONT-8")
@pytest.mark.parametrize(
    "history", [history for history in HISTORIES if history.row_state], ids=lambda h: h.name
)
@pytest.mark.parametrize("boundary", [8, 10])
def test_state_is_saved_at_a_boundary(history: History, boundary: int) -> None:
    """A conversation that goes on otherwise from there reuses what is before, and nothing where no
    boundary was said."""
    prompt = tuple((3 * i + 1) % VOCABULARY for i in range(18))
    for boundaries, reused in (((), 0), ((boundary,), boundary)):
        serving = Serving(history)
        serving.submit(prompt, 3, boundaries=boundaries)
        serving.drain()
        other = serving.submit((*prompt[:boundary], 2, 2, 2), 4)
        serving.drain()
        serving.check(1)
        serving.check(other)
        assert serving.got[other].reused == reused
