"""An answer while it is made: hears the worker's events and keeps what its reader isn't ready for.

No task runs and no queue wakes anybody for a token: the worker's client calls (`recipient`), and
what comes of the events goes to `_accept` at once. `WholeAnswer` keeps it to the end,
`streaming.StreamedAnswer` writes it. `answer_of` begins the requests and waits for the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from helios.errors import HeliosError
from helios.server.answer_watch import AnswerWatch
from helios.server.answers import FinishReason
from helios.server.choices import Choice
from helios.server.failures import ApiError, internal_error
from helios.server.observation import ChoiceSteps, Step, Totals
from helios.server.outcomes import merged, step_of
from helios.server.presentation import Presenter
from helios.server.running import AskedClient
from helios.worker.messages import Submit, TokensEvent
from helios.worker.recipient import RequestEvent

_log = logging.getLogger(__name__)

# Events made into one at a time: what a reader has missed is worked on in pieces of about a
# millisecond, and others come in between.
_AT_ONCE: Final = 256


class Answer:
    """The recipient of all requests of one answer. `outcome` is the body, or what ends the stream;
    an ApiError where there is none. `finishes` says how choices have ended, `error` what ended the
    answer if they haven't. With `merges` events that came together, or while the reader
    was busy, are taken for one."""

    def __init__(
        self,
        choices: Sequence[Choice],
        presenter: Presenter,
        totals: Callable[[int], Totals],
        watch: Callable[[Submit], AnswerWatch],
        *,
        merges: bool,
    ) -> None:
        self._choices = {choice.submit.request_id: choice for choice in choices}
        self._presenter = presenter
        self._totals = totals
        self._arrived = {
            choice.submit.request_id: watch(choice.submit).arrived for choice in choices
        }
        self._merges = merges
        self._text_only = presenter.text_only
        self._running = len(choices)
        self.finishes: dict[int, FinishReason] = {}
        self.error: ApiError | None = None
        self._waiting: list[RequestEvent] = []
        self._failure: HeliosError | None = None
        # Prompt tokens that each prompt's first choice reused; choices that haven't shown their
        # prompt's scores, and what came of them before these were known.
        self._reused: dict[int, int] = {}
        self._unshown = {choice.index for choice in choices if choice.scored is not None}
        self._held: list[tuple[Choice, RequestEvent]] = []
        self.outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    # ------------------------------------------------------------ as a recipient

    def take(self, event: RequestEvent) -> bool:
        """Keeps an event; whether it is the first that waits."""
        self._arrived[event.request_id](event)
        self._waiting.append(event)
        return len(self._waiting) == 1

    def fail(self, failure: HeliosError) -> None:
        """The worker is dead; what came before is still the reader's."""
        self._failure = failure
        self.deliver()

    def deliver(self) -> None:
        """Goes on as far as the reader lets it."""
        if self.outcome.done():
            return
        try:
            while self._waiting and not self.outcome.done() and self._ready():
                self._work()
            if self._failure is not None and not self._waiting and not self.outcome.done():
                raise ApiError(500, str(self._failure), code="model_failed")
        except ApiError as error:
            self.end(error)
        except Exception as error:
            self._end_unforeseen(error)

    def _end_unforeseen(self, error: Exception) -> None:
        """Ends the answer because of a bug."""
        _log.error("an answer can't be written", exc_info=error)
        self.end(internal_error())

    def end(self, error: ApiError) -> None:
        """Ends the answer where it is, if it hasn't ended."""
        if not self.outcome.done():
            self.error = error
            self._end_badly(error)

    def _work(self) -> None:
        """Works on some of the events that wait."""
        if len(self._waiting) == 1:
            events, self._waiting = self._waiting, []
        else:
            events, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            if self._merges:
                events = _merged_by_request(events)
        for event in events:
            self._push(self._choices[event.request_id], event)
        self._pushed()

    def _push(self, choice: Choice, event: RequestEvent) -> None:
        unshown = choice.index in self._unshown
        if unshown and isinstance(event, TokensEvent) and not choice.hears_scores(event):
            self._held.append((choice, event))
            return
        step = step_of(choice, event, text_only=self._text_only)
        if unshown:
            self._unshown.discard(choice.index)
            assert choice.scored is not None
            step = replace(step, prompt=choice.scored.tokens)
        if choice.leads:
            self._reused[choice.index] = step.reused_prompt_tokens
        if step.finish is not None:
            self._running -= 1
            self.finishes[step.index] = step.finish
        self._accept(step)
        if unshown and self._held:
            held, self._held = self._held, []
            for waiting in held:
                self._push(*waiting)

    def _all_totals(self) -> Totals:
        """What is known once all choices have ended."""
        return self._totals(sum(self._reused.values()))

    # ------------------------------------------------------------ what kinds of answers do

    def _ready(self) -> bool:
        """Whether the reader takes more."""
        return True

    def _accept(self, step: Step) -> None:
        """A choice has got further."""
        raise NotImplementedError

    def _pushed(self) -> None:
        """These events are through."""

    def _end_badly(self, error: ApiError) -> None:
        """There won't be more of the answer."""
        self.outcome.set_exception(error)


class WholeAnswer(Answer):
    """An answer that is read at its end."""

    def __init__(
        self,
        choices: Sequence[Choice],
        presenter: Presenter,
        totals: Callable[[int], Totals],
        watch: Callable[[Submit], AnswerWatch],
    ) -> None:
        super().__init__(choices, presenter, totals, watch, merges=False)
        self._steps: list[list[Step]] = [[] for _ in choices]

    def _accept(self, step: Step) -> None:
        self._steps[step.index].append(step)

    def _pushed(self) -> None:
        if self._running:
            return
        answers = [ChoiceSteps(s, self.finishes[index]) for index, s in enumerate(self._steps)]
        self.outcome.set_result(self._presenter.body(answers, self._all_totals()))


def _merged_by_request(events: Sequence[RequestEvent]) -> list[RequestEvent]:
    """One event a request, and one more where it ends without an answer."""
    found: dict[int, list[RequestEvent]] = {}
    ends: list[RequestEvent] = []
    for event in events:
        if isinstance(event, TokensEvent):
            found.setdefault(event.request_id, []).append(event)
        else:
            ends.append(event)
    return [merged(each) for each in found.values()] + ends


async def answer_of(client: AskedClient, choices: Sequence[Choice], answer: Answer) -> bytes:
    """Asks the model and waits for the outcome; whoever cancels it cancels the requests. Raises
    the outcome's ApiError."""
    try:
        for choice in choices:
            client.begin(choice.submit, answer)
    except HeliosError as error:
        answer.fail(error)
    try:
        return await answer.outcome
    finally:
        for choice in choices:
            client.leave(choice.submit.request_id)
