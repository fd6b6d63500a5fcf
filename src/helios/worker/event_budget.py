"""How much a response's event queue must be able to hold, so that a paused reader loses nothing.

Nothing is allocated for it: queues grow as events arrive. A worker that sends more than a request
may have is broken.
"""

from __future__ import annotations

from typing import Final

from helios.worker.messages import Submit

# The request's own last event, a cancellation from this side, the worker's failure.
_TERMINAL_EVENTS: Final = 3


def event_budget(request: Submit, event_capacity: int) -> int:
    """Events of a response: one for each token that the request may emit, one observation a token
    and one score a prompt token where they are asked for, and the terminal ones. `event_capacity`
    is a minimum, not a cap."""
    output = request.output_limit * (2 if request.observed else 1)
    scores = len(request.prompt_tokens) if request.score_prompt else 0
    return max(event_capacity, output + scores + _TERMINAL_EVENTS)
