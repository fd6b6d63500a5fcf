"""Where an answer ends because its client said so: stop strings, stop tokens and token sequences.

Pure and incremental. `HeldBack` looks for sequences in a stream of symbols and keeps back what may
still become part of one; `TokenStops` and `TextStops` put it before and behind a detokenizer. The
worker asks a `StopMatcher` whether a request goes on, `OutputPipeline` asks another one what of
the output is shown: both see the same tokens, so they agree. However the stream is cut, the result
is the same. What clients may ask for is checked by `stop_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from helios.dataclass import dataclass
from helios.frontend.detokenizer import Detokenizer
from helios.frontend.token_bytes import TokenBytes

Symbol = TypeVar("Symbol", str, int)


@dataclass(frozen=True, slots=True)
class StopConditions:
    """What ends an answer early: one of the strings in its text, or one of the sequences in its
    tokens. Nothing in either is empty."""

    strings: tuple[str, ...] = ()
    sequences: tuple[tuple[int, ...], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything that could end an answer."""
        return bool(self.strings or self.sequences)

    @property
    def single_tokens(self) -> tuple[int, ...]:
        """The tokens that end an answer by themselves."""
        return tuple(sequence[0] for sequence in self.sequences if len(sequence) == 1)


NO_STOPS: Final = StopConditions()


class _Progress(Generic[Symbol]):
    """How much of one sequence the stream ends with (Knuth, Morris and Pratt)."""

    def __init__(self, sequence: Sequence[Symbol]) -> None:
        self._sequence: Sequence[Symbol] = sequence
        # After `i + 1` symbols in a row a mismatch leaves `borders[i]` of them.
        self._borders = [0] * len(sequence)
        length = 0
        for index in range(1, len(sequence)):
            while length and sequence[index] != sequence[length]:
                length = self._borders[length - 1]
            length += sequence[index] == sequence[length]
            self._borders[index] = length
        self.length = 0

    def push(self, symbol: Symbol) -> bool:
        """Whether the stream now ends with the whole sequence; then nothing more is pushed."""
        length = self.length
        while length and symbol != self._sequence[length]:
            length = self._borders[length - 1]
        self.length = length + (symbol == self._sequence[length])
        return self.length == len(self._sequence)


class HeldBack(Generic[Symbol]):
    """A stream up to the first of some sequences that is complete in it; where several become so
    with one symbol, the longest counts. `stopped` is set by the first one."""

    def __init__(self, sequences: Iterable[Sequence[Symbol]]) -> None:
        self._sequences: list[_Progress[Symbol]] = [_Progress(sequence) for sequence in sequences]
        self._held: list[Symbol] = []
        self.stopped = False

    def push(self, symbols: Iterable[Symbol]) -> list[Symbol]:
        """What can't become part of a match any more; after a match nothing."""
        if self.stopped:
            return []
        held = self._held
        for symbol in symbols:
            held.append(symbol)
            # All of them must see the symbol, so no short cut.
            complete = [one.length for one in self._sequences if one.push(symbol)]
            if complete:
                self.stopped = True
                self._held = []
                return held[: len(held) - max(complete)]
        kept = max((one.length for one in self._sequences), default=0)
        released = held[: len(held) - kept]
        self._held = held[len(held) - kept :]
        return released

    def finish(self) -> list[Symbol]:
        """What is still held back, once no more symbols can come."""
        held, self._held = self._held, []
        return held

    @property
    def held(self) -> int:
        """Symbols held back now."""
        return len(self._held)


class StopMatcher:
    """One request's tokens as text, up to where a stop ends it. `stopped` is set by the first
    match. An `eos` token ends a request by itself and has no text.

    `token_bytes` may be None where no strings are looked for and the text isn't wanted.
    """

    def __init__(
        self,
        conditions: StopConditions,
        token_bytes: TokenBytes | None,
        *,
        eos_ids: Iterable[int],
        continues: bool,
    ) -> None:
        self._eos_ids = frozenset(eos_ids)
        self._tokens = HeldBack[int](conditions.sequences) if conditions.sequences else None
        self._text = HeldBack[str](conditions.strings) if conditions.strings else None
        self._detokenizer = Detokenizer(token_bytes, continues=continues) if token_bytes else None
        assert self._detokenizer or not self._text, "strings are looked for in text"

    @property
    def stopped(self) -> bool:
        """Whether a stop has been found."""
        return any(held is not None and held.stopped for held in (self._tokens, self._text))

    @property
    def held_characters(self) -> int:
        """Characters held back because they may begin a stop string."""
        return self._text.held if self._text is not None else 0

    def push(self, token: int) -> str:
        """The text that the token releases."""
        if self._text is None and self._tokens is None and self._detokenizer is not None:
            # Nothing is looked for, as in most requests.
            return "" if token in self._eos_ids else self._detokenizer.push(token)
        if self.stopped:
            return ""
        if self._tokens is None:
            return self._decoded((token,))
        return self._decoded(self._tokens.push((token,)))

    def finish(self) -> str:
        """The text that is still held back, once no more tokens can come."""
        if self.stopped and self._text is not None:
            return ""
        rest = self._decoded(self._tokens.finish()) if self._tokens is not None else ""
        if self._detokenizer is not None:
            rest += self._searched(self._detokenizer.finish())
        if self._text is not None:
            rest += "".join(self._text.finish())
        return rest

    def _decoded(self, tokens: Iterable[int]) -> str:
        if self._detokenizer is None:
            return ""
        shown = (self._detokenizer.push(token) for token in tokens if token not in self._eos_ids)
        return self._searched("".join(shown))

    def _searched(self, text: str) -> str:
        return text if self._text is None else "".join(self._text.push(text))
