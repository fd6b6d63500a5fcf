"""A response parser: text in, deltas out, one state machine for reasoning, content and calls.

`ResponseParser` drives a `Machine`, which is a syntax's own; what all machines promise is that
their deltas add up to the same however the text is cut.
"""

from __future__ import annotations

from typing import Protocol

from helios.frontend.response.deltas import Delta, Sink
from helios.frontend.response.matching import Source


class Machine(Protocol):
    """Reads a source into a sink."""

    def step(self, source: Source, sink: Sink) -> bool:
        """Consumes what is decided. Returns whether it is to be called again at once: False where
        only more text helps."""

    def finish(self, source: Source, sink: Sink) -> None:
        """The response is over: `source` is final, and `step` has left what it couldn't use."""

    def primed(self, source: Source) -> None:
        """What was read so far stood in the prompt: `source` keeps of the rest only what may be
        structure that the response completes."""


class ResponseParser:
    """One response's parser."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._source = Source()
        self._sink = Sink()

    @property
    def complete_calls(self) -> int:
        """Calls that came to their end."""
        return self._sink.complete_calls

    def prime(self, opened: str) -> list[Delta]:
        """Reads what of the response stands in the prompt already, before anything is pushed. None
        of it is given out, except a call that the response goes on with."""
        self._source.text = opened
        while self._source.text and self._machine.step(self._source, self._sink):
            pass
        self._machine.primed(self._source)
        return self._sink.restart()

    def push(self, text: str) -> list[Delta]:
        """The deltas that more text completes; `text` is a `MarkedReader`'s."""
        self._source.text += text
        while self._source.text and self._machine.step(self._source, self._sink):
            pass
        return self._sink.take()

    def finish(self) -> list[Delta]:
        """The deltas of what was held back, once the response is over."""
        self._source.final = True
        while self._machine.step(self._source, self._sink):
            pass
        self._machine.finish(self._source, self._sink)
        self._sink.finish()
        return self._sink.take()
