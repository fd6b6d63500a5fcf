"""Runs `stage` and `record` in Triton's interpreter, as a process with TRITON_INTERPRET=1. Ends
with an assertion where a round isn't brought as it should; `test_transport` starts it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from ignition.kernels.cuda.launches import At, CudaKernel
from tests.ignition.cuda import interpreter
from tests.ignition.cuda.interpreter_rules import current, install
from tests.ignition.cuda.lowered_cases import Launch
from tests.ignition.cuda.placed_memory import Memory

RANGE = 8192
SEQUENCE = 300
_clock = iter(range(1000, 2000))


def now() -> Any:
    return tl.tensor(TensorHandle(np.array([next(_clock)], np.int64), tl.int64), tl.int64)


def release(word: Any, value: Any) -> None:
    """All that came before is there when the value is."""
    memory = current.memory
    completed = memory.places["completed"]
    assert int(word.handle.data[0]) == completed.start
    completed.array[0] = int(value.handle.data[0])
    assert np.array_equal(memory.places["record"].array, memory.places["done"].array)
    assert memory.places["times"].array[SEQUENCE % 256, 1] > 0


def table(*ranges: tuple[str, str, int, int]) -> np.ndarray:
    """(source, destination, first byte, bytes) of places as addresses."""
    memory = current.memory
    rows = [
        (memory.places[a].start + at, memory.places[b].start + at, nbytes)
        for a, b, at, nbytes in ranges
    ]
    return np.array(rows, np.int64)


def main(*, descending: bool) -> None:
    transport: Any = import_module("ignition.kernels.cuda.transport")
    transport.now, transport.release = now, release
    current.memory = memory = Memory()
    random = np.random.default_rng(5)
    nbytes = RANGE + 48
    for name in ("inputs", "done"):
        memory.place(name, random.integers(0, 256, nbytes, np.uint8), writable=False)
    for name in ("copies", "record"):
        memory.place(name, np.zeros(nbytes, np.uint8), writable=True)
    memory.place("sequence", np.array([SEQUENCE], np.int64), writable=False)
    memory.place("state", np.zeros(2, np.int64), writable=True)
    memory.place("arrivals", np.zeros(1, np.int32), writable=True)
    memory.place("times", np.zeros((256, 2), np.int64), writable=True)
    memory.place("completed", np.zeros(1, np.int64), writable=True)
    cuts = [(0, 16), (16, RANGE), (RANGE + 16, 32)]
    for name, source, destination in (("in", "inputs", "copies"), ("out", "done", "record")):
        rows = table(*((source, destination, at, size) for at, size in cuts))
        memory.place(f"{name} table", rows, writable=False)
    places = {name: At(name) for name in memory.places}
    interpreter._launches = [Launch("transport", {}, {}, {name: name for name in memory.places})]
    staging = {"table": places["in table"], "sequence": places["sequence"]}
    staging["state"] = places["state"]
    run(CudaKernel(transport.STAGE, (3, 1, 1), staging), descending)
    assert np.array_equal(memory.places["copies"].array, memory.places["inputs"].array)
    assert memory.places["state"].array[0] == SEQUENCE
    began = memory.places["state"].array[1]
    assert began >= 1000
    names = ("state", "arrivals", "times", "completed")
    recording = {"table": places["out table"], **{name: places[name] for name in names}}
    run(CudaKernel(transport.RECORD, (3, 1, 1), recording), descending)
    assert memory.places["completed"].array[0] == SEQUENCE
    assert memory.places["arrivals"].array[0] == 0
    times = memory.places["times"].array
    assert times[SEQUENCE % 256, 0] == began < times[SEQUENCE % 256, 1]
    assert np.count_nonzero(times) == 2


def run(kernel: CudaKernel, descending: bool) -> None:
    interpreter._run(kernel, descending)


if __name__ == "__main__":
    install()
    for order in (False, True):
        main(descending=order)
