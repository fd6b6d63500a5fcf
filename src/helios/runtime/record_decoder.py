"""From a CompletionRecord message to a `CompletionRecord`: the buffers that the host reads.

Shapes and types of the record's parts are held against each other here; whether a program writes
them is in `checks.graphs`. `manifest_decoder` is the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helios.contract.fields import join, name, refuse
from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS, TOP_CAPACITY
from helios.runtime.manifest import Buffer, BufferClass, CompletionRecord, DType


def find_buffer(
    buffers: Sequence[Buffer],
    index: Mapping[str, int],
    buffer: str,
    where: str,
    kind: BufferClass | None = None,
) -> int:
    """The index of a buffer by its name. Raises ContractError where there is none, or none of this
    kind."""
    found = index.get(buffer)
    if found is None:
        refuse(where, f"no buffer {buffer!r}")
    if kind is not None and buffers[found].buffer_class is not kind:
        actual = buffers[found].buffer_class.name
        refuse(where, f"{buffer!r} is a {actual} buffer, not {kind.name}")
    return found


class RecordDecoder:
    """Reads the completion records of a manifest with these buffers."""

    def __init__(self, buffers: Sequence[Buffer], index: Mapping[str, int]) -> None:
        self._buffers = buffers
        self._index = index

    def decode(self, message: Any, where: str) -> CompletionRecord:
        """A completion record; its buffers have a row for each lane, those of scores one for each
        packed token. Raises ContractError at the part at fault."""
        lanes = self._part(message, where, "lanes", DType.I32)
        tokens = self._part(message, where, "tokens", DType.I32)
        logprobs = self._part(message, where, "logprobs", DType.F32)
        rows = self._shape(lanes)[0]
        if self._shape(lanes) != (rows, COMPLETION_LANE_COLUMNS):
            refuse(join(where, "lanes"), f"doesn't have {COMPLETION_LANE_COLUMNS} columns")
        if len(self._shape(tokens)) != 2 or self._shape(tokens)[0] != rows:
            refuse(join(where, "tokens"), f"doesn't have {rows} rows of tokens")
        if self._shape(logprobs) != self._shape(tokens):
            refuse(join(where, "logprobs"), "has another shape than the tokens")
        confidence = None
        if message.proposal_confidence:
            confidence = self._part(message, where, "proposal_confidence", DType.F32)
        top_tokens, top_logprobs = self._likeliest(
            message, where, ("top_tokens", "top_logprobs"), rows
        )
        return CompletionRecord(
            name(message.name, join(where, "name")),
            lanes,
            tokens,
            logprobs,
            confidence,
            top_tokens=top_tokens,
            top_logprobs=top_logprobs,
            **self._scores(message, where),
        )

    def _scores(self, message: Any, where: str) -> dict[str, int | None]:
        """Scores, and what may be said of scored tokens besides: all of it or none."""
        ranked = message.score_ranks or message.score_top_tokens or message.score_top_logprobs
        if not message.scores and not ranked:
            return {}
        scores = self._part(message, where, "scores", DType.F32)
        if len(self._shape(scores)) != 1:
            refuse(join(where, "scores"), "is no row of one value a packed token")
        if not ranked:
            return {"scores": scores}
        rows = self._shape(scores)[0]
        ranks = self._part(message, where, "score_ranks", DType.I32)
        if self._shape(ranks) != (rows,):
            refuse(join(where, "score_ranks"), "has another shape than the scores")
        names = ("score_top_tokens", "score_top_logprobs")
        tokens, logprobs = self._likeliest(message, where, names, rows)
        return {
            "scores": scores,
            "score_ranks": ranks,
            "score_top_tokens": tokens,
            "score_top_logprobs": logprobs,
        }

    def _likeliest(
        self, message: Any, where: str, names: tuple[str, str], rows: int
    ) -> tuple[int, int] | tuple[None, None]:
        """The likeliest tokens and their logprobs: both or neither."""
        if not any(getattr(message, part) for part in names):
            return None, None
        tokens = self._part(message, where, names[0], DType.I32)
        logprobs = self._part(message, where, names[1], DType.F32)
        for part, found in zip(names, (tokens, logprobs), strict=True):
            if self._shape(found) != (rows, TOP_CAPACITY):
                refuse(join(where, part), f"doesn't have {rows} rows of {TOP_CAPACITY}")
        return tokens, logprobs

    def _part(self, message: Any, where: str, field: str, dtype: DType) -> int:
        path = join(where, field)
        wanted = getattr(message, field)
        found = find_buffer(self._buffers, self._index, wanted, path, BufferClass.COMPLETION)
        if self._buffers[found].dtype is not dtype:
            refuse(path, f"holds {self._buffers[found].dtype.name}, not {dtype.name}")
        return found

    def _shape(self, buffer: int) -> tuple[int, ...]:
        return self._buffers[buffer].shape
