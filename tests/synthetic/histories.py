"""Attention histories to test with, and what each must make of a request, from its tokens alone.

A synthetic model's output token is a hash of all that its state should hold: the records of its
paged regions, the last window, the recurrent hash, the saved hidden value. `expected` computes it
without pages, rows or rounds; `tests.synthetic.device` computes it from the storage that the host
handed out. A wrong page, a stale row or a freed window makes them differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

VOCABULARY = 29
PAGE_TOKENS = 4
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class History:
    """Which regions a model has: `key_value` pages, `latent` records of so many tokens (0: none),
    a `window` of so many tokens (0: none), a `recurrent` row; `partial_pages` are saved in
    continuation rows, without which a request begins at whole pages only."""

    name: str
    key_value: bool = False
    latent: int = 0
    window: int = 0
    recurrent: bool = False
    partial_pages: bool = True

    @property
    def row_state(self) -> bool:
        """Whether a request has state beside its pages, so that pages alone can't begin one."""
        return self.recurrent or self.latent > 0

    @property
    def paged(self) -> bool:
        """Whether pages hold anything."""
        return self.key_value or self.latent > 0 or self.window > 0

    @property
    def frees_pages(self) -> bool:
        """Whether pages that the window has left are given back."""
        return self.window > 0 and not self.key_value and not self.latent

    @property
    def saved_planes(self) -> tuple[str, ...]:
        """Paged planes whose partial page goes into a snapshot's row, in the row's order."""
        if not self.partial_pages:
            return ()
        held = (("kv", self.key_value), ("latent", self.latent > 0), ("window", self.window > 0))
        return tuple(name for name, there in held if there)


HISTORIES = (
    History("pages", key_value=True, partial_pages=False),
    History("partial pages", key_value=True),
    History("latent", latent=2),
    History("window", window=6),
    History("wide window", window=11),
    History("recurrent", recurrent=True),
    History("key value and window", key_value=True, window=6),
    History("all", key_value=True, latent=2, window=6, recurrent=True),
)


def mix(*values: int) -> int:
    """64 bits that depend on every value."""
    content = b"".join((value & _WORD).to_bytes(8, "little") for value in values)
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def key_value_record(token: int, position: int) -> int:
    """What a key/value or window plane holds for a token."""
    return mix(1, token, position)


def fold(accumulator: int, token: int) -> int:
    """One more token in a latent record or the recurrent state."""
    return mix(2, accumulator, token)


def hidden(token: int, position: int) -> int:
    """The saved hidden value after a token."""
    return mix(3, token, position)


def output(
    seed: int,
    records: Sequence[int],
    latent: Sequence[int],
    window: Sequence[int],
    rows: Sequence[int],
) -> tuple[int, float]:
    """(token, logprob) that follows a state: `rows` are accumulator, recurrent hash, hidden."""
    parts = (seed, len(records), *records, len(latent), *latent, len(window), *window, *rows)
    number = mix(*parts)
    return number % VOCABULARY, -(number % 997) / 997


@dataclass(frozen=True)
class Answer:
    """What a request must get."""

    tokens: list[int]
    logprobs: list[float]


def expected(
    history: History, prompt: Sequence[int], limit: int, seed: int, eos_ids: Sequence[int] = ()
) -> Answer:
    """The answer to a request that nothing disturbs."""
    context = list(prompt)
    answer = Answer([], [])
    while len(answer.tokens) < limit:
        token, logprob = _after(history, context, seed)
        context.append(token)
        answer.tokens.append(token)
        answer.logprobs.append(logprob)
        if token in eos_ids:
            break
    return answer


def _after(history: History, context: Sequence[int], seed: int) -> tuple[int, float]:
    count = len(context)
    placed = [key_value_record(token, position) for position, token in enumerate(context)]
    latent: list[int] = []
    accumulator = 0
    if history.latent:
        for position, token in enumerate(context):
            accumulator = fold(accumulator, token)
            if (position + 1) % history.latent == 0:
                latent.append(accumulator)
                accumulator = 0
    recurrent = 0
    if history.recurrent:
        for token in context:
            recurrent = fold(recurrent, token)
    last = hidden(context[-1], count - 1) if history.row_state else 0
    return output(
        seed,
        placed if history.key_value else [],
        latent,
        placed[max(0, count - history.window) :] if history.window else [],
        (accumulator, recurrent, last),
    )
