"""Host work of a round: everything between the end of one wait and the start of the next.

    python benchmarks/host.py CORE --accept NAMESPACE

Serves decode rounds of a real core's contract through the worker's loop, the packer and a local
socket, on a device that computes nothing: its `wait` fills in completions that the scheduler
accepts, and that time isn't counted. Prints medians in microseconds for 1, 8 and 32 lanes, for
the whole turn and by step. Aim: at most 150 µs a turn at 32 lanes.
"""

from __future__ import annotations

import argparse
import socket
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import median, quantiles
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.core import OpenedCore, open_core
from helios.errors import ExecutionError
from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.geometry import Operation
from helios.runtime.manifest import BufferClass, Program
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.runtime.targets import deployed_rank, read_manifest
from helios.worker.channel import SocketChannel, encode_batch
from helios.worker.messages import Sampling, Submit
from helios.worker.model_worker import ModelWorker

WARM_UP_ROUNDS = 50
STEPS = ("complete", "send", "plan", "submit")


class NullDevice:
    """Backs only what the host touches; programs take no time. Implements the device protocol.

    It is the worker's client too: reads what the worker sends, and goes away with round `last`.
    """

    name = "cpu"
    kernel_path = "null"

    def __init__(self, client: socket.socket, last: int) -> None:
        self._client = client
        self._last = last
        self._views: dict[str, list[NDArray[np.uint8]]] = {}
        self._names: list[str] = []
        self._programs: Sequence[Program] = ()
        self._queued: deque[tuple[int, int, int]] = deque()
        self._completed = 0
        self._consumed: dict[int, int] = {}

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Host-visible buffers only."""
        for planned in plan.buffers:
            self._names.append(planned.buffer.name)
            if planned.buffer.buffer_class in (BufferClass.INPUT, BufferClass.COMPLETION):
                self._views[planned.buffer.name] = [
                    np.zeros(planned.nbytes, np.uint8) for _ in range(FRAMES)
                ]

    def scratch_nbytes(self) -> int:
        """Nothing runs, so nothing needs scratch."""
        return 0

    def view(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """A frame's copy of an INPUT or COMPLETION buffer."""
        return self._views[self._names[buffer]][frame]

    def load(self, programs: Sequence[Program]) -> None:
        """Only their operations matter."""
        self._programs = programs

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Remembers the round for `wait`."""
        self._queued.append((program, frame, sequence))

    def completed(self) -> int:
        """The last sequence answered."""
        return self._completed

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Answers rounds up to `sequence` and reads what the worker has sent."""
        while self._completed < sequence:
            program, frame, self._completed = self._queued.popleft()
            self._answer(self._programs[program].operation, frame)
        if sequence <= self._last:
            with suppress(BlockingIOError):
                while self._client.recv_into(_SINK):
                    pass
        if sequence == self._last:
            self._client.close()
        return True

    def _answer(self, operation: Operation, frame: int) -> None:
        live = int(self._input("live_rows", frame)[0])
        slots = self._input("slot", frame)[:live]
        if operation is Operation.INITIALIZE:
            self._consumed.update(dict.fromkeys(slots.tolist(), 0))
            return
        lengths, sample = np.ones(live, np.int32), np.ones(live, np.int32)
        if operation is Operation.PREFILL:
            lengths = self._input("query_length", frame)[:live]
            sample = self._input("sample", frame)[:live]
        for slot, length in zip(slots.tolist(), lengths.tolist(), strict=True):
            self._consumed[slot] += length
        rows = self._int32("completion.lanes", frame).reshape(-1, COMPLETION_LANE_COLUMNS)[:live]
        rows[:] = 0
        rows[:, 0] = slots
        rows[:, 1] = self._input("generation", frame)[:live]
        rows[:, 2] = sample
        rows[:, 3] = [self._consumed[slot] for slot in slots.tolist()]
        rows[:, 5:7] = -1
        self._int32("completion.tokens", frame)[:live] = 1

    def _input(self, destination: str, frame: int) -> NDArray[np.int32]:
        return self._int32(f"in.{destination}", frame)

    def _int32(self, name: str, frame: int) -> NDArray[np.int32]:
        return self._views[name][frame].view(np.int32)

    def timing(self, sequence: int) -> tuple[int, int]:
        """Nothing took any time."""
        return (0, 0)

    def launches(self) -> int:
        """No kernel runs here."""
        return 0

    def read_buffer(self, buffer: int, frame: int) -> NDArray[Any]:
        """There is nothing to read."""
        raise ExecutionError("the null device computes nothing", where=self._names[buffer])

    def close(self) -> None:
        """Holds nothing that needs to be closed."""


_SINK = bytearray(1 << 20)


class TurnTrace:
    """Durations in µs: of whole turns (wait to wait) and of their steps."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, list[float]] = defaultdict(list)
        self.turns: list[float] = []
        self._waited_ns = 0

    def __call__(self, step: str, sequence: int, began_ns: int, ended_ns: int, /) -> None:
        """Hears a step of the worker."""
        if sequence <= WARM_UP_ROUNDS and step != "send":
            return
        if step == "wait":
            if self._waited_ns:
                self.turns.append((began_ns - self._waited_ns) / 1e3)
            self._waited_ns = ended_ns
        elif step != "wait":
            self.steps[step].append((ended_ns - began_ns) / 1e3)


def null_runtime(core: OpenedCore, device: NullDevice, slots: int) -> ModelRuntime:
    """A runtime of the core's cpu target on the null device."""
    rank = deployed_rank(core, "cpu")
    weights = {name: core.map_weights(name, verify=False).content for name in rank.weight_resources}
    return ModelRuntime(
        core.contract, read_manifest(core, rank), weights, device, Capacities(request_slots=slots)
    )


def measure(core: OpenedCore, lanes: int, rounds: int) -> TurnTrace:
    """Serves `lanes` requests for `rounds` rounds."""
    client, theirs = socket.socketpair()
    runtime = null_runtime(core, NullDevice(client, rounds), lanes)
    greedy = Sampling(0.0, 0, 1.0, 0.0, 0)
    requests = [Submit(i, [1] * 8, rounds, greedy, [2]) for i in range(lanes)]
    client.sendall(encode_batch(requests))
    client.setblocking(False)
    trace = TurnTrace()
    channel = SocketChannel(theirs)
    ModelWorker(runtime, channel, trace=trace).run()
    channel.close()
    runtime.close()
    return trace


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description="Host work of a decode round, in microseconds.")
    parser.add_argument("core")
    parser.add_argument("--accept", required=True)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3000)
    arguments = parser.parse_args()
    core = open_core(arguments.core, accept=arguments.accept, allow_unknown_publisher=True)
    print("lanes  turn µs  (p95)  " + "  ".join(f"{step:>8}" for step in STEPS))
    for lanes in arguments.lanes:
        trace = measure(core, lanes, arguments.rounds)
        p95 = quantiles(trace.turns, n=20)[-1]
        steps = "  ".join(f"{median(trace.steps[step]):8.1f}" for step in STEPS)
        print(f"{lanes:5}  {median(trace.turns):7.1f}  {p95:5.0f}  {steps}")


if __name__ == "__main__":
    main()
