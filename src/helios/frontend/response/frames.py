"""Responses of several messages, each with a header that says what it is.

    <|start|>assistant to=self<|message|>Two calls.<|eom|><|start|>assistant to=user<|message|>Hi.

What a header means is a syntax's own (`recipient_headers`, `channels`). The first header is open
already where the prompt ends. Headers and ends count only as their tokens; a message that lacks
its end is ended by the next whole header.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from helios.contract.model import EnvelopeSyntax
from helios.frontend.response.deltas import Sink
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.response.matching import Markers, Source, Verdict
from helios.frontend.response.start import Start

_HEADER_LIMIT = 1024  # characters


class Body(Protocol):
    """What a message's text is read into."""

    def push(self, text: str, sink: Sink) -> None:
        """More of the message, signs included."""

    def finish(self, sink: Sink) -> None:
        """The message is over."""


class Headers(Protocol):
    """How headers are read."""

    def possible(self, text: str) -> bool:
        """Whether a text can be the beginning of a header; what can't be is a message without
        one."""

    def body(self, header: str) -> Body:
        """What the message under a header is read into; a header has every form."""


class TextBody:
    """Reasoning or content. Several messages of one kind are lines of one text."""

    def __init__(self, plain: Callable[[str], str]) -> None:
        self._plain = plain
        self._reasoning = False
        self._said = {True: False, False: False}
        self._first = True

    def begin(self, *, reasoning: bool) -> TextBody:
        """Another message."""
        self._reasoning = reasoning
        self._first = True
        return self

    def restart(self) -> None:
        """What was said so far stood in the prompt."""
        self._said = {True: False, False: False}
        self._first = True

    def push(self, text: str, sink: Sink) -> None:
        """As `Body` says."""
        if not text:
            return
        give = sink.reasoning if self._reasoning else sink.content
        if self._first and self._said[self._reasoning]:
            give("\n")
        self._first = False
        self._said[self._reasoning] = True
        give(self._plain(text))

    def finish(self, sink: Sink) -> None:
        """As `Body` says."""


class NoBody:
    """A message that is read over."""

    def push(self, text: str, sink: Sink) -> None:
        """As `Body` says."""

    def finish(self, sink: Sink) -> None:
        """As `Body` says."""


class FrameMachine:
    """`text` is what reasoning and content go into, which `headers` use, too."""

    def __init__(
        self,
        envelope: EnvelopeSyntax,
        signs: MarkerSigns,
        headers: Headers,
        text: TextBody,
        start: Start,
    ) -> None:
        self._headers = headers
        self._text = text
        self._open = signs.sign(envelope.header_open)
        self._header_close = signs.sign(envelope.header_close)
        self._channel = signs.sign(envelope.channel_open)
        closes = [signs.sign(close) for close in envelope.body_closes]
        # A channel begins a header, too, where the token before it was forgotten.
        self._openers = tuple(filter(None, (self._open, self._channel)))
        self._header_ends = Markers([self._header_close, self._open, *closes])
        self._body_ends = Markers([*self._openers, self._header_close, *closes])
        self._body: Body | None = None
        self._state: Callable[[Source, Sink], bool] = self._header
        if start is not Start.ANSWER:
            self._body = text.begin(reasoning=start is Start.REASONING)
            self._state = self._in_body

    def step(self, source: Source, sink: Sink) -> bool:
        """As `Machine` says."""
        return self._state(source, sink)

    def finish(self, source: Source, sink: Sink) -> None:
        """As `Machine` says."""
        if self._body is not None:
            self._body.finish(sink)
            self._body = None

    def primed(self, source: Source) -> None:
        """As `Machine` says."""
        if self._state == self._in_body:
            source.text = ""
        self._text.restart()

    # ------------------------------------------------------------ states

    def _header(self, source: Source, sink: Sink) -> bool:
        """In a header: up to where its message begins."""
        before, marker = self._header_ends.find(source.text, final=False)
        if len(before) > _HEADER_LIMIT or not self._headers.possible(before):
            self._begin(self._text.begin(reasoning=False))
            return True
        if marker is None:
            if source.final:
                source.text = ""  # half a header
            return False
        source.drop(len(before) + len(marker))
        if marker == self._header_close:
            self._begin(self._headers.body(before))
        elif marker != self._open:
            self._state = self._between
        return True

    def _between(self, source: Source, sink: Sink) -> bool:
        """After a message that has ended: a header, or text under none."""
        text = source.text
        bare = text.lstrip()
        if not bare:
            if source.final:
                source.text = ""
            return False
        if bare.startswith(self._open):
            source.text = bare[len(self._open) :]
            self._state = self._header
            return True
        if any(opener.startswith(bare) for opener in self._openers) and not source.final:
            return False
        source.text = bare
        if any(bare.startswith(opener) for opener in self._openers):
            self._state = self._header
        else:
            self._begin(self._text.begin(reasoning=False))
        return True

    def _in_body(self, source: Source, sink: Sink) -> bool:
        assert self._body is not None
        before, marker = self._body_ends.find(source.text, final=False)
        source.drop(len(before))
        self._body.push(before, sink)
        if marker is None:
            if source.final:
                source.text = ""  # half a control token
            return False
        if marker == self._header_close:
            source.drop(len(marker))  # a control token out of place
            return True
        if marker in self._openers:
            verdict = self._is_header(source.text[len(marker) :], final=source.final)
            if verdict is Verdict.MORE:
                return False
            if verdict is Verdict.NO:
                source.drop(len(marker))
                self._body.push(marker, sink)
                return True
            self._end(sink)
            if marker == self._open:
                source.drop(len(marker))
            self._state = self._header
            return True
        source.drop(len(marker))
        self._end(sink)
        self._state = self._between
        return True

    # ------------------------------------------------------------ parts

    def _is_header(self, text: str, *, final: bool) -> Verdict:
        """Whether a whole header stands here, up to the beginning of its message."""
        header, marker = self._header_ends.find(text, final=False)
        if len(header) > _HEADER_LIMIT or not self._headers.possible(header):
            return Verdict.NO
        if marker is None:
            return Verdict.NO if final else Verdict.MORE
        return Verdict.YES if marker == self._header_close else Verdict.NO

    def _begin(self, body: Body) -> None:
        self._body = body
        self._state = self._in_body

    def _end(self, sink: Sink) -> None:
        assert self._body is not None
        self._body.finish(sink)
        self._body = None
