"""When an answer's tokens arrive from the worker: what the latency histograms are made of.

Times are taken as the worker's events arrive in the HTTP process, before anything is made of them,
so a client that reads slowly makes no model look slow. Tokens that come together, in one event or
one batch, are seen together: the first of them has waited since the last arrival, the others not.
"""

from __future__ import annotations

import time
from typing import Final

from helios.worker.histograms import (
    ANSWER_SECONDS,
    FIRST_TOKEN_SECONDS,
    INTER_TOKEN_SECONDS,
    LENGTH_TOKENS,
    Histogram,
    HistogramCounts,
)
from helios.worker.messages import Finish, Submit, TokensEvent
from helios.worker.recipient import RequestEvent

# How an answer ends that has all it was to have.
_COMPLETE: Final = frozenset({Finish.EOS, Finish.LIMIT, Finish.STOP})


class AnswerHistograms:
    """What all answers of a process are measured with. Only touched by the event loop's thread."""

    def __init__(self) -> None:
        self.first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.inter_token = Histogram(INTER_TOKEN_SECONDS)
        self.decode = Histogram(ANSWER_SECONDS)
        self.end_to_end = Histogram(ANSWER_SECONDS)
        self.prompt_tokens = Histogram(LENGTH_TOKENS)
        self.output_tokens = Histogram(LENGTH_TOKENS)
        self.output_limit = Histogram(LENGTH_TOKENS)

    def counts(self) -> dict[str, HistogramCounts]:
        """By metric name without prefix."""
        return {
            "request_first_token_seconds": self.first_token.counts(),
            "inter_token_seconds": self.inter_token.counts(),
            "request_decode_seconds": self.decode.counts(),
            "request_end_to_end_seconds": self.end_to_end.counts(),
            "request_prompt_tokens": self.prompt_tokens.counts(),
            "request_output_tokens": self.output_tokens.counts(),
            "request_output_limit_tokens": self.output_limit.counts(),
        }


class AnswerWatch:
    """Watches one request to the model, of which an answer with several choices has one each. It
    `began`, on `time.monotonic`'s clock, when the client's request had been read."""

    __slots__ = (
        "_arrived",
        "_began",
        "_first",
        "_histograms",
        "_observe_gap",
        "_request",
        "_tokens",
    )

    def __init__(self, histograms: AnswerHistograms, request: Submit, began: float) -> None:
        self._histograms = histograms
        self._observe_gap = histograms.inter_token.observe_burst
        self._request = request
        self._began = began
        self._first = 0.0
        self._arrived = 0.0
        self._tokens = 0

    def arrived(self, event: RequestEvent) -> None:
        """An event has arrived now."""
        self.arrived_at(event, time.monotonic())

    def arrived_at(self, event: RequestEvent, now: float) -> None:
        """An event arrived at `now`."""
        if type(event) is not TokensEvent:
            return
        tokens = len(event.tokens)
        if tokens:
            if self._tokens:
                self._observe_gap(now - self._arrived, tokens - 1)
            else:
                self._begin(tokens, now)
            self._arrived = now
            self._tokens += tokens
        if event.finish in _COMPLETE:
            self._end(now)

    def _begin(self, tokens: int, now: float) -> None:
        """The first tokens are there: the prompt counts, once for all its choices."""
        histograms, request = self._histograms, self._request
        self._first = now
        histograms.first_token.observe(now - self._began)
        if tokens > 1:
            self._observe_gap(0.0, tokens - 2)
        if request.sibling_of is None:
            histograms.prompt_tokens.observe(len(request.prompt_tokens))
        histograms.output_limit.observe(request.output_limit)

    def _end(self, now: float) -> None:
        """The answer is complete."""
        histograms = self._histograms
        histograms.end_to_end.observe(now - self._began)
        histograms.output_tokens.observe(self._tokens)
        if self._tokens > 1:
            histograms.decode.observe(now - self._first)
