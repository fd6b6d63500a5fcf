"""Raw observation of an answer: token ids, their times, and what a request's way took.

Data between `generation`, which measures, and the presenters, which write it. Times are
nanoseconds on the worker's origin, so that they compare with those of tokens. Without `timed`
nobody reads a clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from helios.dataclass import dataclass
from helios.frontend.output import OutputDelta, PromptToken
from helios.server.answers import FinishReason, Performance, Usage


@dataclass(frozen=True, slots=True)
class Observation:
    """What a client wants to see besides the answer: `token_ids` of prompt and output, hidden
    ones included; `timed` when each output token was completed."""

    token_ids: bool = False
    timed: bool = False


UNOBSERVED: Final = Observation()


@dataclass(frozen=True, slots=True)
class Step:
    """What one event of the worker added to a choice, whose number is `index`. A choice's last step
    has a finish. `completed_ns` is 0 unless the request is timed. `prompt` is there in the first
    step of a choice whose prompt is scored."""

    delta: OutputDelta
    finish: FinishReason | None = None
    completed_ns: int = 0
    reused_prompt_tokens: int = 0
    index: int = 0
    prompt: tuple[PromptToken, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChoiceSteps:
    """All steps of a choice, and how it ended."""

    steps: Sequence[Step]
    finish: FinishReason


@dataclass(frozen=True, slots=True)
class Totals:
    """What is known of a request once all its choices have ended. `performance` is None unless it
    was timed."""

    usage: Usage
    reused_prompt_tokens: int
    performance: Performance | None


class Stopwatch:
    """When a timed request came in and when it was queued."""

    def __init__(
        self, *, timed: bool, origin_ns: int, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._timed = timed
        self._origin_ns = origin_ns
        self._clock = clock
        self._ingress_ns = 0
        self._enqueue_ns = 0

    def came_in(self) -> None:
        """The request's body has been decoded; its preparation hasn't been waited for."""
        if self._timed:
            self._ingress_ns = self._clock() - self._origin_ns

    def queued(self) -> None:
        """The prepared request goes to the model's queue next."""
        if self._timed:
            self._enqueue_ns = self._clock() - self._origin_ns

    def performance(self, reused_prompt_tokens: int) -> Performance | None:
        """What the answer says of it, if the client asked."""
        if not self._timed:
            return None
        return Performance(self._ingress_ns, self._enqueue_ns, reused_prompt_tokens)
