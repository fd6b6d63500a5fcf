"""Standard input, output and error of a command, where its caller closed some of them.

A closed descriptor goes to whatever is opened next, such as a connection, and what is meant for
standard error then ends up there, in this process and in those that it starts.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_DESCRIPTORS: Final = range(3)


def open_closed_streams() -> None:
    """From here on what was closed is there, reads as empty and takes whatever is written."""
    for descriptor in _DESCRIPTORS:
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free one is this one, since those before it are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (for the whole process)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
