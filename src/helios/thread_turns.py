"""How long a thread that computes keeps the interpreter from one that wants it, and how long a
thread sleeps.

Event loops of HTTP processes and the worker's loop give the interpreter up at every call that may
wait, many times for each token, and need it back at once. Beside a thread that prepares a request
or makes a vocabulary, Python's default would have each of these wait for up to 5 ms.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from typing import Final

TURN_S: Final = 0.001
# Beside a GPU: each call of its driver gives the interpreter up, and a step takes less than 1 ms.
GPU_TURN_S: Final = 0.0005
_SET_TIMER_SLACK: Final = 29  # of prctl; nanoseconds


def shorten_turns(*, of_gpu: bool = False) -> None:
    """Sets it for this process. Costs nothing while no two threads want the interpreter."""
    sys.setswitchinterval(GPU_TURN_S if of_gpu else TURN_S)


def sleep_exactly() -> None:
    """Lets sleeps of the calling thread end when they are over: Linux lets them last 50 µs longer,
    so that a processor wakes less often."""
    with suppress(OSError, AttributeError):  # another system
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(1), 0, 0, 0)
