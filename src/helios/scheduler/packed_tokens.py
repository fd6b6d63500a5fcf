"""A prompt's tokens as they are staged: checked once, when the request arrives, and converted then.

Apart from `helios.token_ids`, because HTTP processes, which check what clients send, have no numpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np

# Fewer are compared in less time than numpy is asked.
_FEW: Final = 512


def packed(tokens: Sequence[int], limit: int) -> array[int] | None:
    """The ids as 32-bit integers, which are copied into a frame's staging at once; None where one
    isn't in [0, limit). There must be some."""
    try:
        ids = array("i", tokens)
    except (OverflowError, TypeError):
        return None
    if len(ids) < _FEW:
        least, most = min(tokens), max(tokens)
    else:
        read = np.frombuffer(ids, np.intc)
        least, most = int(read.min()), int(read.max())
    return ids if least >= 0 and most < limit else None
