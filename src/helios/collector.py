"""The collector of reference cycles, as the processes of a server want it.

What a process makes while it starts stays: modules, a model's programs, a tokenizer. What serving
makes afterwards is freed by its last reference; hardly anything of it is a cycle. So the collector
stands still while a process starts, and never walks what is there at the end. The in-process engine
asks for none of this: the collector is its program's.
"""

from __future__ import annotations

import gc
from typing import Final

# A round of 256 lanes makes some 2000 objects that the collector counts, and frees nearly as many.
YOUNG_OBJECTS: Final = 50_000


def rest() -> None:
    """Nothing is collected until `settle`: walking what stays would take a tenth of the start."""
    gc.disable()


def settle(young_objects: int | None = None) -> None:
    """What is there now stays for ever and isn't walked (10 ms a time); what comes is looked at
    again, once there are `young_objects` more of it where that is given."""
    gc.freeze()
    if young_objects is not None:
        gc.set_threshold(young_objects, *gc.get_threshold()[1:])
    gc.enable()
