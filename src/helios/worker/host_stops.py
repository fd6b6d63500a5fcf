"""Requests that the worker may stop: their stop strings and token sequences against their tokens.

The loop asks after each completion, before another round is planned. The tokenizer is opened when
the first request with stop strings comes, so that start-up doesn't wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from helios.errors import ContractError
from helios.scheduler.events import Finish, TokensEmitted
from helios.worker.messages import Submit

if TYPE_CHECKING:
    from helios.frontend.stops import StopMatcher
    from helios.frontend.tokenizer import Tokenizer

OpenTokenizer = Callable[[], "Tokenizer"]


def no_tokenizer() -> Tokenizer:
    """For workers of models without text."""
    raise ContractError(
        "this model has no tokenizer", where="stop", remedy="Use stop_token_ids instead"
    )


class HostStops:
    """The matchers of live requests by their ids."""

    def __init__(self, open_tokenizer: OpenTokenizer) -> None:
        self._open_tokenizer = open_tokenizer
        self._tokenizer: Tokenizer | None = None
        self._matchers: dict[int, StopMatcher] = {}

    def begin(self, request: Submit) -> None:
        """Looks for the request's stops from now on. Raises HeliosError where its text can't be
        had."""
        stops = request.stops
        if stops is None:
            return
        # Imported on use: most workers are never asked.
        from helios.frontend.stops import StopConditions, StopMatcher

        if stops.strings and self._tokenizer is None:
            self._tokenizer = self._open_tokenizer()
        self._matchers[request.request_id] = StopMatcher(
            StopConditions(stops.strings, stops.sequences),
            self._tokenizer if stops.strings else None,
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
