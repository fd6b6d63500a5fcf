"""Responses of text in which tags enclose reasoning and calls: think tags with any call syntax.

Reasoning comes at most once, at the beginning or after some text; a call's opener may end it where
the contract says so. What stands in a call is the call syntax's business (`CallSyntax`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from helios.dataclass import dataclass
from helios.frontend.response.deltas import Sink
from helios.frontend.response.marked_text import MarkerSigns, is_signed
from helios.frontend.response.matching import Markers, Source, Verdict, starts, starts_with_any

_LINES_AFTER_REASONING: Final = 2


class CallSyntax(Protocol):
    """How calls are written. One object a response."""

    openers: tuple[str, ...]
    """Markers that may begin a call, as signs."""

    first_only: tuple[str, ...]
    """Those that do only where no content came before."""

    def begins(self, text: str, *, final: bool) -> Verdict:
        """Whether `text`, which starts with an opener, begins a call or only mentions one."""

    def enter(self) -> None:
        """What follows is a call, from its opener on."""

    def step(self, source: Source, sink: Sink) -> bool | None:
        """As a machine's `step`; None where the calls have ended."""

    def finish(self, source: Source, sink: Sink) -> None:
        """The response ends inside a call."""


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """Delimiters of reasoning, as signs. `newlines`: one belongs to each of them on the inner
    side, and up to two follow the closing one. `ended_by_calls`: a call ends reasoning too."""

    open: str
    close: str
    newlines: bool
    ended_by_calls: bool


class TagMachine:
    """`thinking` says that the response begins inside reasoning. An `opaque` answer has a form of
    its own: once it has begun, nothing in it is a marker."""

    def __init__(
        self,
        signs: MarkerSigns,
        think: ThinkTags | None,
        calls: CallSyntax | None,
        *,
        thinking: bool,
        opaque: bool = False,
    ) -> None:
        self._plain = signs.plain
        self._think = think
        self._calls = calls
        self._reasoned = False
        self._thought = False
        self._is_opaque = opaque
        openers = calls.openers if calls is not None else ()
        inside: list[str] = []
        before: list[str] = [*openers]
        after: list[str] = [*openers]
        if think is not None:
            inside = [think.close, *(openers if think.ended_by_calls else ())]
            before = [*openers, think.open]
            if is_signed(think.close):  # so that it can't be text
                before.append(think.close)
                after.append(think.close)
        self._opening = (*openers, think.open) if think is not None else openers
        self._inside, self._before, self._after = map(Markers, (inside, before, after))
        self._state: Callable[[Source, Sink], bool] = self._content
        if think is not None and thinking:
            self._reasoned = True
            self._state = self._reasoning_start

    def step(self, source: Source, sink: Sink) -> bool:
        """As `Machine` says."""
        return self._state(source, sink)

    def finish(self, source: Source, sink: Sink) -> None:
        """As `Machine` says."""
        if self._calls is not None and self._state == self._in_calls:
            self._calls.finish(source, sink)

    def primed(self, source: Source) -> None:
        """As `Machine` says. Models repeat an opening tag that the prompt has opened."""
        if self._state == self._in_calls:
            return
        if self._state in (self._reasoning, self._reasoning_newline) and not self._thought:
            self._state = self._reasoning_start
        source.text = ""

    # ------------------------------------------------------------ states

    def _reasoning_start(self, source: Source, sink: Sink) -> bool:
        """Drops an opening tag that repeats the prompt's, and the newline that belongs to it."""
        assert self._think is not None
        bare = source.text.lstrip()
        match starts(bare, self._think.open, final=source.final):
            case Verdict.MORE:
                return False
            case Verdict.YES:
                source.text = bare[len(self._think.open) :]
        self._state = self._reasoning_newline
        return True

    def _reasoning_newline(self, source: Source, sink: Sink) -> bool:
        assert self._think is not None
        if not source.text and not source.final:
            return False
        if self._think.newlines and source.text.startswith("\n"):
            source.drop(1)
        self._state = self._reasoning
        return True

    def _reasoning(self, source: Source, sink: Sink) -> bool:
        think, final = self._think, source.final
        assert think is not None
        text = source.text
        before, marker = self._inside.find(text, final=final)
        self._thought = self._thought or bool(text)
        if marker is None:
            if think.newlines and not final and before.endswith("\n"):
                before = before[:-1]  # it may belong to the closing tag
            source.drop(len(before))
            sink.reasoning(self._plain(before))
            return False
        rest = text[len(before) :]
        if marker != think.close:
            assert self._calls is not None
            verdict = self._calls.begins(rest, final=final)
            if verdict is Verdict.NO:
                source.text = rest[len(marker) :]
                sink.reasoning(self._plain(before + marker))
                return True
            if verdict is Verdict.MORE:
                kept = before.removesuffix("\n") if think.newlines else before
                source.drop(len(kept))
                sink.reasoning(self._plain(kept))
                return False
            source.text = rest
            sink.reasoning(self._plain(before.removesuffix("\n") if think.newlines else before))
            self._calls.enter()
            self._state = self._in_calls
            return True
        source.text = rest[len(marker) :]
        sink.reasoning(self._plain(before.removesuffix("\n") if think.newlines else before))
        self._state = self._after_reasoning if think.newlines else self._content
        return True

    def _after_reasoning(self, source: Source, sink: Sink) -> bool:
        """Drops the newlines that belong to the closing tag."""
        text = source.text
        count = len(text) - len(text.lstrip("\n"))
        if count == len(text) < _LINES_AFTER_REASONING and not source.final:
            return False
        source.drop(min(count, _LINES_AFTER_REASONING))
        self._state = self._content
        return True

    def _opaque(self, source: Source, sink: Sink) -> bool:
        sink.content(self._plain(source.text))
        source.text = ""
        return False

    def _begins_answer(self, source: Source) -> Verdict:
        """Whether what comes is the answer, and not reasoning or a call before it."""
        bare = source.text.lstrip()
        begins = starts_with_any(bare, self._opening, final=source.final)
        if not bare and not source.final:
            return Verdict.MORE
        return {Verdict.YES: Verdict.NO, Verdict.NO: Verdict.YES}.get(begins, begins)

    def _content(self, source: Source, sink: Sink) -> bool:
        if self._is_opaque:
            verdict = self._begins_answer(source)
            if verdict is Verdict.YES:
                self._state = self._opaque
            if verdict is not Verdict.NO:
                return verdict is Verdict.YES
        think, text = self._think, source.text
        markers = self._after if self._reasoned else self._before
        before, marker = markers.find(text, final=source.final)
        sink.content(self._plain(before))
        source.text = text[len(before) :]
        if marker is None:
            return False
        if think is not None and marker == think.close:
            source.drop(len(marker))  # a close too many is markup, not content
            return True
        if think is not None and marker == think.open and not self._reasoned:
            source.drop(len(marker))
            self._reasoned = True
            self._state = self._reasoning_newline
            return True
        assert self._calls is not None
        if marker in self._calls.first_only and not sink.fresh:
            source.drop(len(marker))
            sink.content(marker)
            return True
        match self._calls.begins(source.text, final=source.final):
            case Verdict.MORE:
                return False
            case Verdict.NO:
                source.drop(len(marker))
                sink.content(self._plain(marker))
            case Verdict.YES:
                self._calls.enter()
                self._state = self._in_calls
        return True

    def _in_calls(self, source: Source, sink: Sink) -> bool:
        assert self._calls is not None
        went_on = self._calls.step(source, sink)
        if went_on is None:
            self._reasoned = True  # what follows a call is content
            self._state = self._content
            return True
        return went_on
