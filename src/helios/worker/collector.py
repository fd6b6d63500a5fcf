"""The collector of reference cycles, as a process that only serves wants it.

What a round makes is freed by its last reference; hardly anything of it is a cycle. The worker's
process calls this once its model is loaded, and so does the benchmark of its host work. The
in-process engine doesn't: the collector is its program's.
"""

from __future__ import annotations

import gc
from typing import Final

# A round of 256 lanes makes some 2000 objects that the collector counts, and frees nearly as many.
_YOUNG_OBJECTS: Final = 50_000


def settle() -> None:
    """What is there now stays for ever and isn't walked again (10 ms a time); what comes is looked
    at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
