"""When rounds were seen to complete and when the next ones were launched, without tracing the loop.

`TimedRuntime` stands before a runtime and notes two moments a round, which costs a fraction of a
microsecond; `WaveChannel` is a worker's socket and its client at once. Both work on the worker's
own thread, as in a server's worker process, where nothing else runs.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from helios.contract.enums import Operation
from helios.runtime.geometry import Geometry
from helios.runtime.rounds import Completion, Round
from helios.worker.channel import SocketChannel
from helios.worker.messages import Submit, ToWorker
from helios.worker.model_worker import Runtime

_SINK = bytearray(1 << 20)


@dataclass(slots=True)
class Moments:
    """Of each round by sequence, in ns: when its launch had returned, when it was seen to have
    completed, (start, end) on the device, and of how many lanes it is if it decodes, else 0."""

    launched: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    ran: dict[int, tuple[int, int]] = field(default_factory=dict)
    lanes: dict[int, int] = field(default_factory=dict)

    def host_us(self, frames: int) -> list[float]:
        """From seeing a round complete to having launched the next that was free to go."""
        return self._between(frames, lambda n: self.launched[n + frames] - self.seen[n])

    def idle_us(self) -> list[float]:
        """From a round's end on the device to the next one's beginning there."""
        return self._between(1, lambda n: self.ran[n + 1][0] - self.ran[n][1])

    def lag_us(self) -> list[float]:
        """From a round's end on the device to seeing that it has ended."""
        return self._between(1, lambda n: self.seen[n] - self.ran[n][1])

    def device_us(self) -> list[float]:
        """A round on the device."""
        return self._between(1, lambda n: self.ran[n][1] - self.ran[n][0])

    def _between(self, frames: int, of: Callable[[int], int]) -> list[float]:
        """For each two decode rounds of all lanes, the first quarter left out."""
        most = max(self.lanes.values(), default=0)
        whole = [n for n in self.ran if self.lanes.get(n) == most == self.lanes.get(n + frames)]
        pairs = [n for n in whole if n + frames in self.ran and n + 1 in self.ran]
        return [of(n) / 1e3 for n in pairs[len(pairs) // 4 :]]


class TimedRuntime:
    """A runtime whose rounds are noted in `moments`. While it waits it reads what the worker has
    sent to `client`."""

    def __init__(self, runtime: Runtime, client: socket.socket) -> None:
        self.geometry: Geometry = runtime.geometry
        self.moments = Moments()
        self._runtime = runtime
        self._client = client
        self._decoding = [p.operation is Operation.DECODE for p in runtime.geometry.programs]
        self.can_submit = runtime.can_submit
        self.launches = runtime.launches

    def submit(self, work: Round) -> int:
        """As the runtime's."""
        sequence = self._runtime.submit(work)
        now = time.monotonic_ns()
        self.moments.launched[sequence] = now
        self.moments.lanes[sequence] = len(work.lanes) if self._decoding[work.program] else 0
        return sequence

    def pack_ahead(self, work: Round) -> None:
        """As the runtime's; sources that never do it don't call."""
        self._runtime.pack_ahead(work)

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """As the runtime's."""
        with suppress(BlockingIOError):
            while self._client.recv_into(_SINK):
                pass
        completed = self._runtime.wait(sequence, timeout_ms)
        self.moments.seen[sequence] = time.monotonic_ns()
        return completed

    def read(self, sequence: int) -> Completion:
        """As the runtime's."""
        completion = self._runtime.read(sequence)
        self.moments.ran[sequence] = (completion.started_ns, completion.completed_ns)
        return completion


class WaveChannel(SocketChannel):
    """Gives the worker one wave of requests after the other, each once the one before has ended;
    then the client goes. `between` is called before each wave and at the end."""

    def __init__(
        self,
        connection: socket.socket,
        waves: Iterator[Sequence[Submit]],
        between: Callable[[], None],
    ) -> None:
        super().__init__(connection)
        self._waves = waves
        self._between = between

    def receive(self, *, block: bool, timeout_ms: int | None = None) -> list[ToWorker]:
        """As `WorkerChannel.receive`: an idle worker gets the next wave."""
        if not block:
            return super().receive(block=False)
        if timeout_ms is not None:
            return []  # nobody comes before the worker has nothing left to do
        self._between()
        wave = next(self._waves, None)
        if wave is None:
            self._lose()
            return []
        return list(wave)
