"""A streamed answer: the worker's events become server-sent events on the client's connection.

A token costs one call from the worker's client, its text, and one write; what is the same in every
event was encoded before (`text_chunks`). While the client's connection takes no more, events wait
here as the worker sent them, as many as the request may have; then they are made into one, so a
reader that is slow gets fewer chunks with more text each. Streams that show token ids keep an
event for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from helios.frontend.response.deltas import Content
from helios.server import sse
from helios.server.answer_watch import AnswerWatch
from helios.server.answering import Answer
from helios.server.body_writer import BodyWriter
from helios.server.choices import Choice
from helios.server.failures import ApiError
from helios.server.observation import Step, Totals
from helios.server.presentation import Presenter
from helios.server.text_chunks import TextChunks
from helios.worker.messages import Submit, TokensEvent
from helios.worker.recipient import RequestEvent

_TextOf = Callable[[Sequence[int]], str]
_EventOf = Callable[[str], bytes]


class StreamedAnswer(Answer):
    """Writes to `writer` as events come; `outcome` is what to end the stream with, `[DONE]` or one
    error."""

    def __init__(
        self,
        choices: Sequence[Choice],
        presenter: Presenter,
        totals: Callable[[int], Totals],
        watch: Callable[[Submit], AnswerWatch],
        writer: BodyWriter,
        *,
        include_usage: bool,
        merges: bool,
    ) -> None:
        super().__init__(choices, presenter, totals, watch, merges=merges)
        self._writer = writer
        self._include_usage = include_usage
        self._frames = [sse.frame(chunk) for chunk in presenter.opening(len(choices))]
        # What makes text of a choice's tokens, and an event of its text, where there is no more to
        # it than that.
        self._plain: dict[int, tuple[_TextOf, _EventOf]] = {}
        # Events of content alone, where responses are parsed.
        self._parsed: dict[int, TextChunks] = {}
        if presenter.text_only:
            for request_id, choice in self._choices.items():
                chunks = TextChunks(presenter, choice.index)
                if choice.pipeline.parses:
                    self._parsed[request_id] = chunks
                else:
                    self._plain[request_id] = (choice.pipeline.push_text, chunks.frame)
        writer.on_resume = self.deliver
        if self._frames:
            self._write()

    def deliver(self) -> None:
        """As `Answer.deliver`. Most events come alone and are nothing but text: these have a short
        way, since this is where a busy server's time goes."""
        waiting = self._waiting
        if len(waiting) == 1 and not self._writer.paused and not self.outcome.done():
            event = waiting[0]
            plain = self._plain.get(event.request_id)
            if plain is not None and type(event) is TokensEvent and not event.finish:
                waiting.clear()
                try:
                    text = plain[0](event.tokens)
                    if text:
                        self._writer.write(plain[1](text))
                except Exception as error:
                    self._end_unforeseen(error)
                return
        super().deliver()

    def _ready(self) -> bool:
        return not self._writer.paused

    def _push(self, choice: Choice, event: RequestEvent) -> None:
        """As `Answer._push`; the ways that most events go are shorter."""
        if type(event) is TokensEvent and not event.finish:
            plain = self._plain.get(event.request_id)
            if plain is not None:
                if text := plain[0](event.tokens):
                    self._frames.append(plain[1](text))
                return
            parsed = self._parsed.get(event.request_id)
            if parsed is not None:
                self._push_parsed(choice, event, parsed)
                return
        super()._push(choice, event)

    def _push_parsed(self, choice: Choice, event: TokensEvent, chunks: TextChunks) -> None:
        delta = choice.pipeline.push_parts(event.tokens)
        if not all(isinstance(part, Content) for part in delta.parts):
            self._accept(Step(delta, index=choice.index))
        elif delta.text:
            self._frames.append(chunks.frame(delta.text))

    def _accept(self, step: Step) -> None:
        totals = None if self._running else self._all_totals()
        self._frames += [sse.frame(chunk) for chunk in self._presenter.chunks(step, totals)]
        if totals is not None and self._include_usage:
            self._frames.append(sse.frame(self._presenter.usage_chunk(totals.usage)))

    def _pushed(self) -> None:
        if not self._running:
            self._end(sse.DONE)
        elif self._frames:
            self._write()

    def _write(self) -> None:
        frames, self._frames = self._frames, []
        self._writer.write(b"".join(frames) if len(frames) > 1 else frames[0])

    def _end(self, last: bytes) -> None:
        frames, self._frames = self._frames, []
        self.outcome.set_result(b"".join((*frames, last)))

    def _end_badly(self, error: ApiError) -> None:
        self._end(sse.frame(msgspec.json.encode(error.body)))
