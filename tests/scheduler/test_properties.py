"""The property that everything else serves: whatever happens to other requests, and however
rounds are cut, a request's tokens are those that it gets alone; and nothing leaks."""

from __future__ import annotations

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
from helios.scheduler import Finish, Request, SchedulerOptions
from tests.scheduler.driving import Driver
from tests.scheduler.driving import request as make_request
from tests.scheduler.fake_model import VOCABULARY, FakeModel, alone, geometry

PREFILLS = [((4, 4), (16, 4)), ((8, 2),), ((3, 1), (5, 5), (32, 3))]


class SchedulerMachine(RuleBasedStateMachine):
    """Acts in any order, two frames or one, roomy or crowded caches; compares in the end."""

    @initialize(
        slots=st.integers(1, 5),
        pages=st.integers(3, 14),
        page_tokens=st.sampled_from([1, 3, 4]),
        prefill=st.sampled_from(PREFILLS),
        decode=st.sampled_from([(1,), (2,), (1, 2, 4)]),
        frames=st.sampled_from([1, 2]),
        chunk=st.sampled_from([None, 1, 3, 8]),
        queue=st.integers(1, 8),
        at_once=st.booleans(),
    )
    def start(
        self,
        slots: int,
        pages: int,
        page_tokens: int,
        prefill: tuple[tuple[int, int], ...],
        decode: tuple[int, ...],
        frames: int,
        chunk: int | None,
        queue: int,
        at_once: bool,
    ) -> None:
        self.driver = Driver(
            FakeModel(
                geometry(
                    slots=slots,
                    pages=pages,
                    page_tokens=page_tokens,
                    context=30,
                    prefill=prefill,
                    decode=decode,
                )
            ),
            SchedulerOptions(
                prefill_chunk_tokens=chunk, frames_in_flight=frames, queue_capacity=queue
            ),
            at_once=at_once,
        )
        self.requests: dict[int, Request] = {}

    @rule(
        prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20),
        limit=st.integers(1, 14),
        eos=st.lists(st.integers(0, VOCABULARY - 1), max_size=3),
        seed=st.integers(0, 3),
    )
    def submit(self, prompt: list[int], limit: int, eos: list[int], seed: int) -> None:
        one = make_request(len(self.requests), tuple(prompt), limit, eos_ids=tuple(eos), seed=seed)
        shape = self.driver.model.geometry
        fits = (
            len(prompt) + limit <= shape.max_context_tokens
            and -(-one.stored_tokens // shape.page_tokens) <= shape.cache_pages
        )
        live = sum(not got.ended for got in self.driver.got.values())
        scheduler = self.driver.scheduler
        room = live < shape.request_slots + scheduler.options.queue_limit and scheduler.has_room()
        try:
            self.driver.submit(one)
        except AdmissionError:
            assert not (fits and room)
        else:
            assert fits
            assert room
            self.requests[one.request_id] = one

    @precondition(lambda self: self.driver.scheduler.can_plan())
    @rule()
    def launch(self) -> None:
        launched = self.driver.launch()
        if not (launched or self.driver.sequences):
            self.driver.settle()
        assert launched or self.driver.sequences or self.driver.scheduler.idle, "no way on"

    @precondition(lambda self: self.driver.model.queued)
    @rule()
    def run_on_the_device(self) -> None:
        self.driver.model.run_next()

    @precondition(lambda self: self.driver.sequences)
    @rule()
    def complete(self) -> None:
        self.driver.complete()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        ended = self.driver.got[request_id].ended
        self.driver.cancel(request_id)
        if not ended:
            assert self.driver.got[request_id].finish is Finish.CANCELLED

    @precondition(lambda self: not self.driver.at_once)
    @rule()
    def settle(self) -> None:
        self.driver.settle()

    @rule(turns=st.integers(1, 6))
    def several_turns(self, turns: int) -> None:
        for _ in range(turns):
            self.driver.turn()

    @invariant()
    def what_came_so_far_is_what_it_gets_alone(self) -> None:
        for request_id, one in getattr(self, "requests", {}).items():
            got = self.driver.got[request_id]
            assert got.failure is None
            tokens, logprobs, finish = alone(one)
            assert got.tokens == tokens[: len(got.tokens)]
            assert got.logprobs == logprobs[: len(got.logprobs)]
            if got.finish not in (None, Finish.CANCELLED):
                assert (got.tokens, got.finish) == (tokens, finish)

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.drain()
        self.what_came_so_far_is_what_it_gets_alone()
        assert all(self.driver.got[request_id].ended for request_id in self.requests)
        counters = self.driver.scheduler.counters
        assert counters.submitted == sum(counters.finished.values()) == len(self.requests)
        if self.driver.scheduler.options.frames_in_flight == 1:
            assert counters.empty_lanes == 0


SchedulerMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None
)
TestScheduler = SchedulerMachine.TestCase
