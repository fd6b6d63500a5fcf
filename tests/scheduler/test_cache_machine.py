"""Whatever happens, with whatever history a model keeps: a request gets what it gets alone, nothing
leaks, and nothing is reused that wasn't behind a fence."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from helios.errors import AdmissionError
from helios.runtime.rounds import Completion
from helios.scheduler import Finish, Request, SchedulerOptions
from helios.scheduler.planned import ADMITTING
from tests.scheduler.driving import Driver
from tests.scheduler.driving import request as make_request
from tests.scheduler.fake_model import alone
from tests.scheduler.histories import HISTORIES, History, driver_of

LETTERS = 5


class CacheMachine(RuleBasedStateMachine):
    """Requests that share beginnings, in every kind of cache, with faults at every fence."""

    @initialize(
        history=st.sampled_from(HISTORIES),
        slots=st.integers(1, 4),
        pages=st.integers(4, 14),
        page_tokens=st.sampled_from([1, 3, 4]),
        rows=st.integers(0, 5),
        frames=st.sampled_from([1, 2]),
        chunk=st.sampled_from([None, 1, 3, 8]),
        mixed=st.booleans(),
        reuse=st.sampled_from([True, True, True, False]),
        tier_delay=st.sampled_from([None, None, 0, 2]),
        at_once=st.booleans(),
    )
    def start(
        self,
        history: History,
        slots: int,
        pages: int,
        page_tokens: int,
        rows: int,
        frames: int,
        chunk: int | None,
        mixed: bool,
        reuse: bool,
        tier_delay: int | None,
        at_once: bool,
    ) -> None:
        self.driver: Driver = driver_of(
            history,
            SchedulerOptions(
                prefill_chunk_tokens=chunk,
                frames_in_flight=frames,
                queue_capacity=8,
                prefix_reuse=reuse,
            ),
            tier_delay=tier_delay,
            slots=slots,
            pages=pages,
            page_tokens=page_tokens,
            context=30,
            rows=rows,
            mixed=((8, 5),) if mixed else (),
        )
        self.driver.at_once = at_once
        self.reuse = reuse
        self.requests: dict[int, Request] = {}
        self.may_fail: set[int] = set()
        # Token sequences behind a fence, which others may begin with that were admitted between
        # the same two resets: a reset takes nothing from those that hold it already.
        self.computed: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        self.dead = False

    # ------------------------------------------------------------ requests

    @precondition(lambda self: not self.dead)
    @rule(data=st.data(), limit=st.integers(1, 12), priority=st.sampled_from([0, 0, 0, -1, 1]))
    def submit(self, data: st.DataObject, limit: int, priority: int) -> None:
        prompt: list[int] = []
        if self.requests and data.draw(st.integers(0, 3)):
            earlier = data.draw(st.sampled_from(sorted(self.requests)))
            known = [*self.requests[earlier].prompt, *self.driver.got[earlier].tokens]
            prompt += known[: data.draw(st.integers(0, len(known)) | st.just(len(known)))]
        if not prompt or data.draw(st.booleans()):
            prompt += data.draw(st.lists(st.integers(0, LETTERS - 1), max_size=12))
        one = make_request(
            len(self.driver.got),
            tuple(prompt[:20]) or (1,),
            limit,
            eos_ids=data.draw(st.sampled_from([(), (), (7,), (7, 11, 13)])),
            seed=data.draw(st.integers(0, 2)),
            priority=priority,
            prefix_reuse=data.draw(st.sampled_from([True, True, True, False])),
            sibling_of=data.draw(st.sampled_from([None, *self.requests])),
            frequency_penalty=data.draw(st.sampled_from([0.0, 0.5])),
        )
        try:
            self.driver.submit(one)
        except AdmissionError:
            return
        self.requests[one.request_id] = one

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        ended = self.driver.got[request_id].ended
        self.driver.cancel(request_id)
        if not ended:
            assert self.driver.got[request_id].finish is Finish.CANCELLED

    # ------------------------------------------------------------ rounds

    @precondition(lambda self: not self.dead and self.driver.scheduler.can_plan())
    @rule()
    def launch(self) -> None:
        driver = self.driver
        launched = driver.launch()
        if not (launched or driver.sequences):
            driver.settle()
        fetching = driver.tier is not None and any(not f.finished for f in driver.tier.fetches)
        assert launched or driver.sequences or fetching or driver.scheduler.idle, "no way on"
        if launched:
            self.check_reuse()

    def check_reuse(self) -> None:
        """The round just launched reuses nothing but what is behind a fence."""
        planned = self.driver.in_flight[-1]
        if planned.program.operation not in ADMITTING:
            return
        for resident, lane in zip(planned.residents, planned.round.lanes, strict=True):
            tokens, request = resident.progress.tokens, resident.progress.request
            computed = self.computed[resident.hold.era]
            known = max((common(tokens, other) for other in computed), default=0)
            assert lane.start <= (known if self.reuse and request.prefix_reuse else 0)

    @precondition(lambda self: self.driver.model.queued)
    @rule()
    def run_on_the_device(self) -> None:
        self.driver.model.run_next()

    @precondition(lambda self: self.driver.sequences)
    @rule()
    def complete(self) -> None:
        planned = self.driver.in_flight[0]
        self.driver.complete()
        for resident in planned.residents:
            if resident.progress.request.prefix_reuse:
                computed = tuple(resident.progress.tokens[: resident.consumed])
                self.computed[resident.hold.era].append(computed)

    @precondition(lambda self: not self.driver.at_once)
    @rule()
    def settle(self) -> None:
        self.driver.settle()

    @rule(turns=st.integers(1, 20))
    def several_turns(self, turns: int) -> None:
        for _ in range(turns):
            if not self.dead and self.driver.scheduler.can_plan():
                self.launch()
            if self.driver.sequences:
                self.complete()

    @precondition(lambda self: self.computed)
    @rule(really=st.integers(0, 5))
    def reset_cache(self, really: int) -> None:
        if not really:
            self.driver.scheduler.reset_cache()
            self.driver.check()

    # ------------------------------------------------------------ faults

    @precondition(lambda self: self.driver.sequences)
    @rule(kind=st.sampled_from(["order", "count", "lane"]))
    def fault(self, kind: str) -> None:
        """The oldest round comes back wrong."""
        planned = self.driver.in_flight[0]
        failing = {resident.progress.request.request_id for resident in planned.residents}

        def tamper(completion: Completion) -> Completion:
            nonlocal failing
            if kind == "order":
                return completion._replace(sequence=completion.sequence + 1)
            if not completion.lanes:
                failing = set()
                return completion
            first, *others = completion.lanes
            if kind == "count":
                return completion._replace(lanes=tuple(others))
            failing = {planned.residents[0].progress.request.request_id}
            wrong = first._replace(consumed=first.consumed + 1)
            return completion._replace(lanes=(wrong, *others))

        before = {number: got.failure for number, got in self.driver.got.items()}
        self.driver.model.tamper = tamper
        self.complete()
        self.driver.model.tamper = lambda completion: completion
        for number, got in self.driver.got.items():
            assert got.failure == before[number] or number in failing
        self.may_fail |= failing

    @precondition(lambda self: len(self.requests) > 4 and not self.dead)
    @rule(really=st.integers(0, 5))
    def the_device_fails(self, really: int) -> None:
        if really:
            return
        live = [number for number in self.requests if not self.driver.got[number].ended]
        self.driver.take(self.driver.scheduler.fail("it is gone"))
        assert all(self.driver.got[number].failure == "it is gone" for number in live)
        assert self.driver.scheduler.idle
        self.driver.sequences.clear()
        self.driver.in_flight.clear()
        self.may_fail |= set(live)
        self.dead = True

    # ------------------------------------------------------------ what must hold

    @invariant()
    def what_came_so_far_is_what_it_gets_alone(self) -> None:
        for number, one in getattr(self, "requests", {}).items():
            got = self.driver.got[number]
            assert got.failure is None or number in self.may_fail
            tokens, logprobs, finish = alone(one, self.driver.model.memory.kind)
            assert got.tokens == tokens[: len(got.tokens)]
            assert got.logprobs == logprobs[: len(got.logprobs)]
            assert got.reused < len(one.prompt)
            if got.finish not in (None, Finish.CANCELLED):
                assert (got.tokens, got.finish) == (tokens, finish)

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        if not self.dead:
            self.driver.drain()
        self.what_came_so_far_is_what_it_gets_alone()
        assert all(self.driver.got[number].ended for number in self.requests)
        scheduler = self.driver.scheduler
        counters = scheduler.counters
        assert counters.submitted == sum(counters.finished.values()) == len(self.requests)
        assert scheduler.cache.pages.free + scheduler.cache.evictable_pages == scheduler.pages.pages
        scheduler.reset_cache()
        self.driver.check()
        assert scheduler.pages.free == scheduler.pages.pages
        assert scheduler.cache.rows.free == scheduler.cache.rows.rows


def common(ours: list[int], theirs: tuple[int, ...]) -> int:
    """How many tokens both begin with."""
    count = 0
    while count < min(len(ours), len(theirs)) and ours[count] == theirs[count]:
        count += 1
    return count


CacheMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestCache = CacheMachine.TestCase
