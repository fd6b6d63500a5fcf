"""Reads what a record says of scored tokens besides their logprobs: ranks, the likeliest tokens.

`CompletionReader` asks for one lane's packed tokens at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import TOP_CAPACITY
from helios.runtime.device import FRAMES
from helios.runtime.manifest import CompletionRecord
from helios.runtime.rounds import NO_RANKING, Alternatives, Ranking


class RankingReader:
    """A record's ranks and likeliest tokens, which it has, in both frames. `view(buffer, frame)`
    gives a COMPLETION buffer."""

    def __init__(
        self,
        record: CompletionRecord,
        view: Callable[[int, int], NDArray[np.uint8]],
        vocabulary_tokens: int,
    ) -> None:
        parts = (record.score_ranks, record.score_top_tokens, record.score_top_logprobs)
        ranks, tokens, logprobs = parts
        assert ranks is not None
        assert tokens is not None
        assert logprobs is not None
        self._vocabulary_tokens = vocabulary_tokens
        self._frames = tuple(
            (
                view(ranks, frame).view(np.int32),
                view(tokens, frame).view(np.int32).reshape(-1, TOP_CAPACITY),
                view(logprobs, frame).view(np.float32).reshape(-1, TOP_CAPACITY),
            )
            for frame in range(FRAMES)
        )

    def read(self, frame: int, start: int, end: int, wanted: int) -> tuple[Ranking, str]:
        """What is said of the packed tokens from `start` to `end`, with `wanted` of the likeliest
        at each; or, as the second value, what in it can't be true."""
        ranks, tokens, logprobs = self._frames[frame]
        places = ranks[start:end]
        if len(places) and not 0 <= places.min() <= places.max() <= self._vocabulary_tokens:
            return NO_RANKING, f"ranks from {places.min()} to {places.max()}"
        found = tuple(places.tolist())
        if not wanted:
            return Ranking(found), ""
        ids = tokens[start:end, :wanted]
        if len(ids) and not -1 <= ids.min() <= ids.max() < self._vocabulary_tokens:
            return NO_RANKING, f"scored alternatives from {ids.min()} to {ids.max()}"
        counts = np.where((ids < 0).any(axis=1), (ids < 0).argmax(axis=1), wanted).tolist()
        rows = zip(ids.tolist(), logprobs[start:end, :wanted].tolist(), counts, strict=True)
        return (
            Ranking(
                found,
                tuple(Alternatives(tuple(i[:count]), tuple(p[:count])) for i, p, count in rows),
            ),
            "",
        )
