"""The client's requests inside the worker: their messages become the scheduler's requests, its
events the messages that the client gets.

Stops are looked for here, between a completion and the next plan, then grammars are followed; times
of tokens are put in for those that want them. `ModelWorker` is the caller; when anything is sent is
its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.errors import AdmissionError, HeliosError
from helios.scheduler import Event, Finish, PromptScored, Request, RequestFailed, Scheduler
from helios.scheduler.planned import PlannedRound
from helios.worker.constraints import Constraints
from helios.worker.grammars import Grammars, OpenVocabulary
from helios.worker.held_requests import HeldRequests, OpenTokenBytes
from helios.worker.host_stops import HostStops
from helios.worker.ingress import Ingress
from helios.worker.matcher_faults import Problem
from helios.worker.messages import (
    FailedEvent,
    FromWorker,
    RejectedEvent,
    Submit,
    TokensEvent,
    cancelled,
)
from helios.worker.request_times import RequestTimes


class ClientRequests:
    """Those of the client, from `arrive` to their last event: in the `ingress`, `held`, or the
    scheduler's. Methods return what the client is told."""

    def __init__(
        self,
        scheduler: Scheduler,
        times: RequestTimes,
        open_token_bytes: OpenTokenBytes,
        open_vocabulary: OpenVocabulary,
    ) -> None:
        self.ingress = Ingress(scheduler.options.queue_limit)
        self.grammars = Grammars(open_vocabulary)
        self.constraints = Constraints(scheduler, self.grammars.counters)
        self.held = HeldRequests(open_token_bytes, self.grammars)
        self._scheduler = scheduler
        self._stops = HostStops(self.held.token_bytes)
        self._times = times
        # Those that want to know when their tokens were completed.
        self._timed: set[int] = set()

    def arrive(self, message: Submit) -> list[FromWorker]:
        """Takes a request in, and hands it on where the scheduler's queue has room for it."""
        if self.ingress.join(message):
            return []
        if message.sibling_of is not None and self._knows(message.sibling_of):
            return self._submit(message)
        told = self.feed()
        if self.ingress.put(message):
            return told + self.feed()
        text = f"{len(self.ingress)} requests have arrived and wait already. Try again later"
        return [*told, RejectedEvent(message.request_id, text)]

    def feed(self) -> list[FromWorker]:
        """Hands on what has arrived, as far as the scheduler's queue has room."""
        told: list[FromWorker] = []
        while self.ingress and self._scheduler.has_room(beside=len(self.held)):
            for message in self.ingress.pop():
                told += self._submit(message)
        return told

    def _knows(self, request_id: int) -> bool:
        """Whether a request is live and past the ingress."""
        return request_id in self.held or self._scheduler.is_live(request_id)

    def _submit(self, message: Submit) -> list[FromWorker]:
        """Hands a request to the scheduler, as soon as its stops can be looked for and its grammar
        can be followed."""
        if self.held.hold(message):
            return []
        try:
            prepared = self.held.prepared(message.request_id)
        except HeliosError as error:
            return [FailedEvent(message.request_id, str(error))]
        request = Request(
            request_id=message.request_id,
            prompt=tuple(message.prompt_tokens),
            output_limit=message.output_limit,
            sampling=message.sampling.parameters(),
            eos_ids=tuple(message.eos_ids),
            priority=message.priority,
            score_prompt=message.score_prompt,
            host_stops=message.stops is not None,
            sibling_of=message.sibling_of,
            prompt_top_logprobs=message.prompt_top_logprobs,
            constrained=prepared is not None,
            boundaries=tuple(message.boundaries),
        )
        try:
            self._scheduler.submit(request)
        except AdmissionError as error:
            return [RejectedEvent(message.request_id, str(error))]
        try:
            self._stops.begin(message)
        except HeliosError as error:
            self._scheduler.cancel(message.request_id)
            return [FailedEvent(message.request_id, str(error))]
        self._times.submitted(message.request_id)
        if message.timed:
            self._timed.add(message.request_id)
        problem = None if prepared is None else self.constraints.begin(message, prepared)
        return [] if problem is None else self._end_unfollowed(message.request_id, problem)

    def release(self) -> list[FromWorker]:
        """Hands on those that need be held no longer."""
        return [told for request in self.held.release() for told in self._submit(request)]

    def cancel(self, request_id: int) -> list[FromWorker]:
        """Ends a request; one that isn't live is ignored."""
        if self.ingress.remove(request_id) or self.held.remove(request_id):
            return [cancelled(request_id)]
        return self.messages(self._scheduler.cancel(request_id))

    def cancel_all(self) -> list[FromWorker]:
        """Ends every request."""
        messages = self.messages(self._scheduler.cancel_all())
        return messages + [cancelled(request.request_id) for request in self._unscheduled()]

    def fail(self, message: str) -> list[FromWorker]:
        """Ends every request because the device has failed."""
        messages = self.messages(self._scheduler.fail(message))
        return messages + [FailedEvent(one.request_id, message) for one in self._unscheduled()]

    def _unscheduled(self) -> list[Submit]:
        """Takes out those that the scheduler doesn't have yet."""
        return [*self.ingress.clear(), *self.held.clear()]

    def advance(self, events: Sequence[Event]) -> list[FromWorker]:
        """Follows grammars, after the host has stopped whom it would; requests that can't go on
        fail."""
        told: list[FromWorker] = []
        for request_id, problem in self.constraints.advance(events).items():
            told += self._end_unfollowed(request_id, problem)
        return told

    def _end_unfollowed(self, request_id: int, problem: Problem) -> list[FromWorker]:
        """Ends a request whose grammar can't be followed any further, unless it has ended."""
        finish = Finish.GRAMMAR if problem.fault else Finish.FAILED
        if not self._scheduler.cancel(request_id, problem.what, finish):
            return []
        self._forget(request_id)
        return [FailedEvent(request_id, problem.what, problem.fault)]

    @property
    def decide(self) -> bool:
        """Whether the host looks at tokens before it knows what follows them: `messages` and
        `advance` must then come before the next plan."""
        return self._stops.any or self.constraints.any

    def is_timed(self, planned: PlannedRound) -> bool:
        """Whether the round makes a token of a request that wants to know when."""
        return bool(self._timed) and any(
            lane.sample and resident.progress.request.request_id in self._timed
            for resident, lane in zip(planned.residents, planned.round.lanes, strict=True)
        )

    def messages(self, events: Sequence[Event], completed_ns: int = 0) -> list[FromWorker]:
        """What events tell the client, after the requests whose tokens complete a stop have been
        stopped."""
        messages: list[FromWorker] = []
        scored = _UNSCORED
        for event in events:
            if isinstance(event, PromptScored):
                scored = event  # the request's first token follows at once
            elif isinstance(event, RequestFailed):
                messages.append(FailedEvent(event.request_id, event.message))
                self._forget(event.request_id)
            else:
                request_id, finish = event.request_id, event.finish
                if self._stops.ends(event):
                    self._scheduler.stop(request_id)
                    finish = Finish.STOP
                if event.tokens:
                    self._times.tokens(request_id)
                messages.append(
                    TokensEvent(
                        request_id,
                        event.tokens,
                        event.logprobs,
                        finish or 0,
                        scored.logprobs,
                        event.reused_prompt_tokens,
                        event.alternatives,
                        completed_ns if request_id in self._timed else 0,
                        scored.ranks,
                        scored.alternatives,
                    )
                )
                scored = _UNSCORED
                if finish is not None:
                    self._forget(request_id)
        return messages

    def _forget(self, request_id: int) -> None:
        """The request has its last event."""
        self._stops.forget(request_id)
        self.constraints.forget(request_id)
        self._times.forget(request_id)
        self._timed.discard(request_id)


_UNSCORED: Final = PromptScored(-1, ())
