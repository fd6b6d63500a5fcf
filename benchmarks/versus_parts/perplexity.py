"""Perplexity of each storage form on a fixed text, beside float32 on the same stored weights and
llama.cpp's files.

Everyone scores the same predictions, those that llama.cpp's own program scores: the second half of
windows of 512 tokens, so that each has 256 tokens before it at least. The windows of a second text,
which begins half a window later, score what the first one's leave out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from .aims import NOTHING, figure

WIDTH: Final = 512
FIRST: Final = WIDTH // 2
# Rounding moves a text's perplexity so far either way: files that only round come out below float32
# as well as above it.
CHANCE: Final = 5e-4


@dataclass(frozen=True)
class Form:
    """A storage form: what it takes on disk, and its perplexity."""

    name: str
    nbytes: int
    perplexity: float


@dataclass(frozen=True)
class Passages:
    """The texts and their windows of tokens."""

    texts: tuple[str, ...]
    windows: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def every_window(self) -> list[tuple[int, ...]]:
        """The windows of all texts."""
        return [window for windows in self.windows for window in windows]

    def perplexity(self, nats_per_token: Sequence[float]) -> float:
        """Of all texts together, of what each has; every window has as many predictions."""
        weights = [len(windows) for windows in self.windows]
        total = sum(w * nats for w, nats in zip(weights, nats_per_token, strict=True))
        return math.exp(total / sum(weights))


class Tokens(Protocol):
    """Turns text into tokens and back."""

    def encode(self, text: str) -> list[int]:
        """A text's tokens."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens' text."""
        ...


def passages(text: str, tokens: Tokens) -> Passages:
    """The text, and what is left of it half a window later: cut where the rest's tokens are the
    same as in the whole."""
    whole = tokens.encode(text)
    if len(whole) < 3 * WIDTH:
        raise SystemExit(f"the text has {len(whole)} tokens; {3 * WIDTH} are the fewest")
    for cut in range(FIRST, WIDTH):
        rest = tokens.decode(whole[cut:])
        if tokens.encode(rest) == whole[cut:]:
            return Passages((text, rest), (_windows(whole), _windows(whole[cut:])))
    raise SystemExit("the text can't be cut between two tokens without changing them")


def _windows(tokens: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    count = len(tokens) // WIDTH
    return tuple(tuple(tokens[i * WIDTH : (i + 1) * WIDTH]) for i in range(count))


def table(
    float32: float, forms: Sequence[Form], is_ours: Callable[[str], bool]
) -> Iterator[list[str]]:
    """A head, float32, then each form; ours beside the smallest of llama.cpp's files that is as
    large at least."""
    yield ["storage", "MB", "perplexity", "over float32", "llama.cpp of that size or more", "met"]
    yield ["float32", NOTHING, f"{float32:.4f}", NOTHING, NOTHING, NOTHING]
    theirs = [form for form in forms if not is_ours(form.name)]
    for form in forms:
        over = f"{100 * (form.perplexity / float32 - 1):+.2f} %"
        cells = [form.name, figure(form.nbytes / 1e6), f"{form.perplexity:.4f}", over]
        rival = smallest_above(theirs, form.nbytes) if is_ours(form.name) else None
        if rival is None:
            yield [*cells, NOTHING, NOTHING]
            continue
        met = "yes" if form.perplexity <= rival.perplexity * (1 + CHANCE) else "no"
        yield [*cells, f"{rival.name} {rival.perplexity:.4f}", met]


def smallest_above(forms: Sequence[Form], nbytes: int) -> Form | None:
    """The smallest form of so many bytes or more."""
    found = [form for form in forms if form.nbytes >= nbytes]
    return min(found, key=lambda form: form.nbytes, default=None)
