"""SentencePiece BPE in terms of merges: what its scores mean to a rank-ordered BPE.

SentencePiece joins, again and again, the neighbouring pieces whose union has the best score. A
rank-ordered BPE does the same when every way to split a piece is a merge, ranked by the score of
the union.
"""

from __future__ import annotations

from typing import Final

from ignition.preparation.tokenizers.gguf_metadata import TokenizerMetadata, TokenKind

# The sign that stands for a space inside pieces: U+2581.
SPACE: Final = "\u2581"


def merges_from_scores(metadata: TokenizerMetadata) -> list[tuple[str, str]]:
    """Every split of a piece into two pieces, best score first."""
    pieces = {
        token
        for token, kind in zip(metadata.tokens, metadata.kinds, strict=True)
        if kind is TokenKind.NORMAL
    }
    ranked = []
    for token, score in zip(metadata.tokens, metadata.scores, strict=True):
        if token not in pieces:
            continue
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in pieces and right in pieces:
                # Of one piece's splits, the longer left part goes first.
                ranked.append((-score, -at, left, right))
    ranked.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in ranked]
