"""What a request's client is told of it, and which of that is the last. Apart from `recipient`,
since the worker needs no event loop."""

from __future__ import annotations

from helios.worker.messages import FailedEvent, RejectedEvent, TokensEvent

RequestEvent = TokensEvent | RejectedEvent | FailedEvent


def ends(event: RequestEvent) -> bool:
    """Whether it is a request's last."""
    return not isinstance(event, TokensEvent) or event.finish != 0
