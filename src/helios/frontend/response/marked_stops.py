"""Stops in a response that a parser reads: the text before a stop, markers as signs.

Stop strings are looked for in the text as a reader would see it, so a marker counts with all the
characters of its spelling although it is one sign; where a stop begins inside a marker, what
stands before it is text. The worker's `StopMatcher` sees the same characters, so both agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from helios.frontend.response.marked_text import MarkedReader
from helios.frontend.stops import HeldBack, StopConditions


class MarkedStops:
    """One response's tokens as marked text, up to where a stop ends it. `plain` gives a sign's
    spelling. An `eos` token ends a response by itself and has no text."""

    def __init__(
        self,
        conditions: StopConditions,
        reader: MarkedReader,
        plain: Callable[[str], str],
        *,
        eos_ids: Iterable[int],
    ) -> None:
        self._reader = reader
        self._plain = plain
        self._eos_ids = frozenset(eos_ids)
        self._tokens = HeldBack[int](conditions.sequences) if conditions.sequences else None
        self._text = HeldBack[str](conditions.strings) if conditions.strings else None
        # Symbols that aren't released yet with their spelling, and how many characters of theirs
        # `_text` has released.
        self._held: deque[tuple[str, str]] = deque()
        self._free = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop has been found."""
        return any(held is not None and held.stopped for held in (self._tokens, self._text))

    @property
    def held_characters(self) -> int:
        """Characters held back because they may begin a stop string."""
        return self._text.held if self._text is not None else 0

    def push(self, token: int) -> str:
        """The marked text that the token releases."""
        if self.stopped:
            return ""
        tokens = (token,) if self._tokens is None else self._tokens.push((token,))
        return self._decoded(tokens)

    def finish(self) -> str:
        """What is still held back, once no more tokens can come."""
        if self.stopped and self._text is not None:
            return ""
        rest = self._decoded(self._tokens.finish()) if self._tokens is not None else ""
        rest += self._searched(self._reader.finish())
        if self._text is not None and not self._text.stopped:
            self._text.finish()
            rest += "".join(symbol for symbol, _ in self._held)
            self._held.clear()
        return rest

    def _decoded(self, tokens: Iterable[int]) -> str:
        shown = (self._reader.push(token) for token in tokens if token not in self._eos_ids)
        return self._searched("".join(shown))

    def _searched(self, text: str) -> str:
        if self._text is None:
            return text
        released: list[str] = []
        for symbol in text:
            if self._text.stopped:
                break
            spelling = self._plain(symbol)
            self._held.append((symbol, spelling))
            self._free += len(self._text.push(spelling))
            released += self._released()
        if self._text.stopped:
            self._held.clear()
        return "".join(released)

    def _released(self) -> Iterator[str]:
        """The symbols whose characters are all free; before a stop, the free ones of the next."""
        while self._held and len(self._held[0][1]) <= self._free:
            symbol, spelling = self._held.popleft()
            self._free -= len(spelling)
            yield symbol
        if self._text is not None and self._text.stopped and self._held:
            yield self._held[0][1][: self._free]
