"""A request's way back: tokens and log-probabilities to text.

One `OutputPipeline` a request; it decides what of the output is visible. How that becomes JSON or
SSE is the server's business, why a request ended the worker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from helios.dataclass import dataclass
from helios.frontend.prepare import PreparedRequest
from helios.frontend.response.deltas import Content, Delta
from helios.frontend.response.marked_stops import MarkedStops
from helios.frontend.response.marked_text import MarkedReader
from helios.frontend.response.parser import ResponseParser
from helios.frontend.responses import ResponseReading
from helios.frontend.stops import StopMatcher
from helios.frontend.tokenizer import Tokenizer


class Alternative(NamedTuple):
    """A token that could have come, its spelling, and its logprob."""

    token: int
    data: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenText:
    """One generated token. `data` is what it adds to the text; for a hidden token, its
    spelling. `offset` counts the characters of text before it. `alternatives` are the likeliest
    tokens in its place, as many as the request asked for."""

    token: int
    data: bytes
    logprob: float
    offset: int
    alternatives: tuple[Alternative, ...] = ()


class PromptToken(NamedTuple):
    """One token of a scored prompt: its spelling, its logprob after the tokens before it, its
    place among all that could have come (from 1), and the likeliest of these, as many as the
    request asked for. The first one has none of that, and `rank` is None where the core's programs
    don't report it."""

    token: int
    data: bytes
    logprob: float | None = None
    rank: int | None = None
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What some tokens added: visible text, which may lag behind the tokens by part of a
    character and by what may become a stop, and the tokens themselves, hidden ones included."""

    text: str
    tokens: tuple[TokenText, ...]
    parts: tuple[Delta, ...] = ()
    """What a response parser made of the text: reasoning, content (which `text` has, too) and
    calls, in their order; empty where nothing is parsed."""


_NOTHING: Final = OutputDelta("", ())


class OutputPipeline:
    """Turns a request's tokens into deltas; `text` of all deltas together is its output.

    End-of-sequence and special tokens count as tokens and have no text, nor have a stop and what
    follows it. Offsets count from the beginning of the prompt where the answer shows it. An
    unanswered request has no output. `reading` is how the core's responses are read; without one,
    or where the request doesn't want it, text is content as it is.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        request: PreparedRequest,
        reading: ResponseReading | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._parser: ResponseParser | None = None
        self._begun: list[Delta] = []
        self._chooses = False
        self._text: StopMatcher | MarkedStops
        if reading is None or request.response is None:
            self._text = StopMatcher(
                request.stops, tokenizer, eos_ids=request.eos_ids, continues=request.continues
            )
        else:
            signs = reading.signs
            reader = MarkedReader(tokenizer, signs, continues=request.continues)
            self._text = MarkedStops(request.stops, reader, signs.plain, eos_ids=request.eos_ids)
            self._parser = reading.parser(request.response)
            self._chooses = request.response.chooses
            self._begun = self._parser.prime(request.response.opened)
        self._prompt = request.prompt_tokens
        self._silent = request.unanswered
        self.prompt_tokens = len(request.prompt_tokens)
        self.output_tokens = 0
        self._characters = len(request.shown.text) if request.shown is not None else 0

    def push(
        self,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        alternatives: Sequence[tuple[Sequence[int], Sequence[float]]] = (),
        *,
        last: bool,
    ) -> OutputDelta:
        """The delta of newly generated tokens, with the likeliest ones in each one's place if
        there are any. `last` says that no more will come, which releases what was held back and is
        no stop."""
        if self._silent:
            return _NOTHING
        pieces = []
        items = []
        for index, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True)):
            data = self._tokenizer.token_bytes(token)
            offset = self._characters + self._text.held_characters
            likeliest = self._spelled(*alternatives[index]) if alternatives else ()
            items.append(TokenText(token, data, logprob, offset, likeliest))
            pieces.append(self._text.push(token))
            if self._parser is None:
                self._characters += len(pieces[-1])
        if last:
            pieces.append(self._text.finish())
        self.output_tokens += len(items)
        return self._delta("".join(pieces), tuple(items), last=last)

    def _delta(self, text: str, tokens: tuple[TokenText, ...], *, last: bool) -> OutputDelta:
        if self._parser is None:
            return OutputDelta(text, tokens)
        parts = [*self._begun, *self._parser.push(text), *(self._parser.finish() if last else ())]
        self._begun = []
        content = "".join(part.text for part in parts if isinstance(part, Content))
        self._characters += len(content)
        return OutputDelta(content, tokens, tuple(parts))

    @property
    def parses(self) -> bool:
        """Whether deltas have parts."""
        return self._parser is not None

    @property
    def calls_tools(self) -> bool:
        """Whether the response called tools of its own choice, and a call came to its end."""
        return self._parser is not None and self._chooses and self._parser.complete_calls > 0

    def push_parts(self, tokens: Sequence[int], *, last: bool = False) -> OutputDelta:
        """As `push`, with nothing said of single tokens."""
        self.output_tokens += len(tokens)
        pieces = [self._text.push(token) for token in tokens]
        if last:
            pieces.append(self._text.finish())
        return self._delta("".join(pieces), (), last=last)

    def push_text(self, tokens: Sequence[int], *, last: bool = False) -> str:
        """The text of newly generated tokens, as in `push`, for who wants nothing else of them.
        Not where deltas have parts."""
        assert self._parser is None
        if self._silent:
            return ""
        self.output_tokens += len(tokens)
        text = self._text
        if len(tokens) == 1 and not last:
            return self._shown(text.push(tokens[0]))
        pieces = [text.push(token) for token in tokens]
        if last:
            pieces.append(text.finish())
        return self._shown("".join(pieces))

    def scored(
        self,
        logprobs: Sequence[float],
        ranks: Sequence[int] = (),
        alternatives: Sequence[tuple[Sequence[int], Sequence[float]]] = (),
    ) -> tuple[PromptToken, ...]:
        """The prompt's tokens with what was said of them, from the second on."""
        spell, prompt = self._tokenizer.token_bytes, self._prompt
        found = [PromptToken(prompt[0], spell(prompt[0]))]
        for index, (token, logprob) in enumerate(zip(prompt[1:], logprobs, strict=True)):
            rank = ranks[index] if ranks else None
            likeliest = self._spelled(*alternatives[index]) if alternatives else ()
            found.append(PromptToken(token, spell(token), logprob, rank, likeliest))
        return tuple(found)

    def _spelled(self, tokens: Sequence[int], logprobs: Sequence[float]) -> tuple[Alternative, ...]:
        spell = self._tokenizer.token_bytes
        pairs = zip(tokens, logprobs, strict=True)
        return tuple(Alternative(token, spell(token), logprob) for token, logprob in pairs)

    def _shown(self, text: str) -> str:
        self._characters += len(text)
        return text
