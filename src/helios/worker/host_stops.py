"""Requests that the worker may stop: their stop strings and token sequences against their tokens.

The loop asks after each completion, before another round is planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.scheduler.events import Finish, TokensEmitted
from helios.worker.messages import Submit

if TYPE_CHECKING:
    from helios.frontend.stops import StopMatcher
    from helios.worker.held_requests import OpenTokenBytes


class HostStops:
    """The matchers of live requests by their ids. `token_bytes` gives what turns their tokens into
    text; it is asked for requests with stop strings alone."""

    def __init__(self, token_bytes: OpenTokenBytes) -> None:
        self._token_bytes = token_bytes
        self._matchers: dict[int, StopMatcher] = {}

    @property
    def any(self) -> bool:
        """Whether stops are looked for at all."""
        return bool(self._matchers)

    def begin(self, request: Submit) -> None:
        """Looks for the request's stops from now on. Raises HeliosError where its text can't be
        had."""
        stops = request.stops
        if stops is None:
            return
        # Imported on use: most workers are never asked.
        from helios.frontend.stops import StopConditions, StopMatcher

        self._matchers[request.request_id] = StopMatcher(
            StopConditions(stops.strings, stops.sequences),
            self._token_bytes() if stops.strings else None,
            eos_ids=request.eos_ids,
            continues=stops.continues,
        )

    def ends(self, event: TokensEmitted) -> bool:
        """Whether the request's new tokens complete a stop. The end of the sequence is no stop."""
        matcher = self._matchers.get(event.request_id)
        if matcher is None or not event.tokens or event.finish is Finish.EOS:
            return False
        for token in event.tokens:
            matcher.push(token)
        if event.finish is not None:
            matcher.finish()  # half a character may complete a stop, too
        return matcher.stopped

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        self._matchers.pop(request_id, None)
