"""What a response parser gives out, and the sink that it writes to.

A delta only ever adds: nothing that was given out is taken back. `Sink` keeps the rules that all
syntaxes share: white space beside a call is no content, calls are numbered from 0 in the order in
which they begin, and neighbouring pieces of text are one delta.
"""

from __future__ import annotations

from typing import NamedTuple


class Reasoning(NamedTuple):
    """Text to append to the reasoning."""

    text: str


class Content(NamedTuple):
    """Text to append to the visible answer."""

    text: str


class CallBegin(NamedTuple):
    """A call of a tool begins; its name is whole. `call` counts from 0; `call_id` is the one that
    the model gave it, in syntaxes where it does."""

    call: int
    name: str
    call_id: str = ""


class CallArguments(NamedTuple):
    """Text to append to a call's arguments. All of it together is one JSON object."""

    call: int
    fragment: str


class CallEnd(NamedTuple):
    """A call is over. `complete` is False where the response ended, or broke off, inside it."""

    call: int
    complete: bool


Delta = Reasoning | Content | CallBegin | CallArguments | CallEnd


class Sink:
    """Collects what a parser reads; `take` hands it on."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._calls = 0
        # White space that is content only if content follows it, and whether a call came last.
        self._space = ""
        self._after_call = False
        self._fresh = True
        self.complete_calls = 0

    def take(self) -> list[Delta]:
        """What came since the last time."""
        taken, self._deltas = self._deltas, []
        return taken

    def restart(self) -> list[Delta]:
        """Forgets what came so far, except a call that hasn't ended: it is the first one then."""
        taken = self.take()
        self._space = ""
        self.complete_calls = 0
        begun = [i for i, delta in enumerate(taken) if isinstance(delta, CallBegin)]
        ended = sum(isinstance(delta, CallEnd) for delta in taken)
        self._calls = len(begun) - ended
        if not self._calls:
            return []
        return [
            delta._replace(call=0)
            for delta in taken[begun[-1] :]
            if isinstance(delta, CallBegin | CallArguments)
        ]

    def reasoning(self, text: str) -> None:
        """More reasoning."""
        if not text:
            return
        deltas = self._deltas
        if deltas and isinstance(deltas[-1], Reasoning):
            deltas[-1] = Reasoning(deltas[-1].text + text)
        else:
            deltas.append(Reasoning(text))

    def content(self, text: str) -> None:
        """More content, or what is content unless a call follows it."""
        if self._after_call:
            text = text.lstrip()
            if not text:
                return
            self._after_call = False
        bare = text.rstrip()
        if not bare:
            self._space += text
            return
        self._append(self._space + bare)
        self._space = text[len(bare) :]

    def finish(self) -> None:
        """No call follows any more."""
        if self._space:
            self._append(self._space)
            self._space = ""

    @property
    def fresh(self) -> bool:
        """Whether there has been no content yet, or none since the last call."""
        return self._fresh

    def begin_call(self, name: str, call_id: str = "") -> None:
        """A call begins; the one before it has ended."""
        self._space = ""
        self._after_call = False
        self._deltas.append(CallBegin(self._calls, name, call_id))
        self._calls += 1

    def arguments(self, fragment: str) -> None:
        """More of the arguments of the call that has begun."""
        if not fragment:
            return
        deltas, index = self._deltas, self._calls - 1
        last = deltas[-1] if deltas else None
        if isinstance(last, CallArguments) and last.call == index:
            deltas[-1] = CallArguments(index, last.fragment + fragment)
        else:
            deltas.append(CallArguments(index, fragment))

    def end_call(self, *, complete: bool) -> None:
        """The call that has begun is over."""
        self._deltas.append(CallEnd(self._calls - 1, complete))
        self._after_call = self._fresh = True
        self.complete_calls += complete

    def _append(self, text: str) -> None:
        self._fresh = False
        deltas = self._deltas
        if deltas and isinstance(deltas[-1], Content):
            deltas[-1] = Content(deltas[-1].text + text)
        else:
            deltas.append(Content(text))
