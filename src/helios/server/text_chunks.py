"""Chunks that hold text alone, encoded once: all but the text is the same in every one of a choice.

A presenter makes a chunk whose text is a mark; what stands before and behind the mark frames each
text from then on. So these chunks are those that the presenter would have made, byte for byte.
"""

from __future__ import annotations

from typing import Final

import msgspec

from helios.frontend.output import OutputDelta
from helios.server.observation import Step
from helios.server.presentation import Presenter

_encode: Final = msgspec.json.Encoder().encode
# Everything behind a chunk's text is the server's own, so the last one found is the mark.
_MARK: Final = "\0"


class TextChunks:
    """The server-sent events of one choice's texts."""

    def __init__(self, presenter: Presenter, index: int) -> None:
        (chunk,) = presenter.chunks(Step(OutputDelta(_MARK, ()), index=index), None)
        before, after = chunk.rsplit(_encode(_MARK), 1)
        self._before = b"data: " + before
        self._after = after + b"\n\n"

    def frame(self, text: str) -> bytes:
        """The event for some text."""
        return self._before + _encode(text) + self._after
