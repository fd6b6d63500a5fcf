"""The stand-in driver's own functions, for the process that has it loaded."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_PLAY = ctypes.CFUNCTYPE(None)


class Standin:
    """Steers the stand-in: errors, pauses, and what a round does beside moving bytes."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._library.standin_violations.restype = ctypes.c_char_p
        self._library.standin_taken.restype = ctypes.c_size_t
        self._library.standin_allocating_calls.restype = ctypes.c_long
        self._library.standin_rounds.restype = ctypes.c_long
        self._library.standin_parameter.restype = ctypes.c_size_t
        self._library.standin_held.restype = ctypes.c_long
        self._play: object = None

    def fail(self, call: str, error: int, number: int = 1) -> None:
        """The `number`th call from now on gives the error: a driver call by its name, `run` for a
        graph's execution, `hang` for one that never ends; `run@1` for those on device 1."""
        self._library.standin_fail(call.encode(), error, ctypes.c_long(number))

    def pause(self, whether: bool, device: int = 0) -> None:
        """Keeps launched graphs of a device from running, or runs them."""
        self._library.standin_pause(device, int(whether))

    def block(self, whether: bool) -> None:
        """Keeps the callers of launches, or lets them go on."""
        self._library.standin_block(int(whether))

    @property
    def waiting(self) -> int:
        """Callers of launches that are kept."""
        return int(self._library.standin_waiting())

    def take(self, round_ns: int) -> None:
        """Rounds take so long from now on: their sequence is released by then."""
        self._library.standin_round_ns(ctypes.c_long(round_ns))

    def on_round(self, play: Callable[[], None], device: int = 0) -> None:
        """Called in every graph's execution on a device, before its record."""
        self._play = _PLAY(play)
        self._library.standin_on_round(device, self._play)

    @property
    def calls(self) -> dict[str, int]:
        """How often each call was made since `forget_calls`; `run` and `hang` are no calls of the
        driver's."""
        lines = ctypes.create_string_buffer(4096)
        self._library.standin_calls(lines, ctypes.c_size_t(4096))
        pairs = (line.split() for line in lines.value.decode().splitlines())
        return {name: int(count) for name, count in pairs}

    def forget_calls(self) -> None:
        """Counts calls anew."""
        self._library.standin_forget_calls()

    def parameters(self, node: int) -> list[bytes]:
        """What a node of the graph that ran last was given."""
        given: list[bytes] = []
        content = ctypes.create_string_buffer(128)
        while nbytes := int(self._library.standin_parameter(node, len(given), content)):
            given.append(content.raw[:nbytes])
        return given

    def programmatic(self, node: int) -> bool:
        """Whether a node of the graph that ran last may begin early."""
        found = int(self._library.standin_programmatic(node))
        assert found >= 0, f"the graph has no node {node}"
        return found == 1

    @property
    def rounds(self) -> int:
        """Graphs that have run."""
        return int(self._library.standin_rounds())

    @property
    def violations(self) -> str:
        """What the driver's callers did that they mustn't."""
        return self._library.standin_violations().decode()

    @property
    def taken_nbytes(self) -> int:
        """Device memory in use, on all devices."""
        return int(self._library.standin_taken())

    @property
    def held(self) -> int:
        """Contexts, streams, events, modules, graphs and allocations that weren't given back."""
        return int(self._library.standin_held())

    @property
    def allocating_calls(self) -> int:
        """Calls so far that took memory."""
        return int(self._library.standin_allocating_calls())
