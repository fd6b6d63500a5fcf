"""What is known of the rounds in flight: which have run, when, and what has failed.

The last kernel of a round releases its sequence in a word of pinned memory; the driver knows of
errors. The first failure is kept: nothing that comes after it can be believed. `CudaDevice` asks.
"""

from __future__ import annotations

import os
import select
import time
from typing import Final

from helios.errors import ExecutionError
from helios.runtime.devices.cuda.clock import GpuClock
from helios.runtime.devices.cuda.driver import NOT_READY, SUCCESS, DriverError, failure
from helios.runtime.devices.cuda.gpu import Gpu, in_thread
from helios.runtime.devices.cuda.pinned import TIMED_SEQUENCES, Frames

# Between two looks at a round's word, and at what the driver says of the stream.
_LOOK_S: Final = 20e-6
# Rounds of calibration are above every real sequence, so that none of them is taken for one.
CALIBRATING_SEQUENCE: Final = 1 << 40
QUERY_NS: Final = 5_000_000
# Looks come without a pause from so long before a round is expected to end until so long after: a
# processor that has slept finds its caches cold and is slow for what the next launch waits for. At
# most these two times a round keep it busy, and only where there are others for other threads.
_SPIN_BEFORE_NS: Final = 1_000_000
_SPIN_AFTER_NS: Final = 500_000
_SPINNING_PROCESSORS: Final = 4
# Polling it lets go of the GIL and comes back at once, which no sleep does.
_NOBODY: Final = select.poll()


def name_of(sequence: int) -> str:
    """A round as errors name it."""
    if sequence < CALIBRATING_SEQUENCE:
        return f"round {sequence}"
    return f"round {sequence - CALIBRATING_SEQUENCE + 1} of calibration"


class RoundWatch:
    """Rounds that have been submitted. `word` holds the last sequence that has run; a round that
    takes longer than the limit is taken for one that never ends. `spins` says whether waiting keeps
    a processor busy around a round's expected end: as its program took the last time."""

    def __init__(self, gpu: Gpu, frames: Frames, limit_ns: int) -> None:
        self._gpu = gpu
        self._limit_ns = limit_ns
        # A view of Python's own, which costs a fraction of numpy's for two values.
        self._times = frames.times.reshape(-1).data
        self._clock = GpuClock()
        self._submitted_ns = [0] * TIMED_SEQUENCES
        self._programs = [0] * TIMED_SEQUENCES
        self._took_ns: dict[int, int] = {}
        self._submitted = 0
        self._seen = 0  # the last sequence that somebody has seen completed, and when
        self._seen_ns = 0
        self.word = frames.completed
        self.failure: ExecutionError | None = None
        self.spins = len(os.sched_getaffinity(0)) >= _SPINNING_PROCESSORS

    def begin(self, sequence: int, program: int) -> None:
        """A round is about to be launched."""
        place = sequence % TIMED_SEQUENCES
        self._programs[place] = program
        self._submitted_ns[place] = time.monotonic_ns()

    def begun(self, sequence: int) -> None:
        """It has been."""
        self._submitted = sequence

    def completed(self) -> int:
        """The last sequence that has run. Raises the failure, if there is one."""
        if self.failure is not None:
            raise self.failure
        completed: int = self.word[0]
        if completed > self._seen:
            self._see(completed, time.monotonic_ns())
        return completed

    def _see(self, completed: int, now_ns: int) -> None:
        place = completed % TIMED_SEQUENCES
        self._took_ns[self._programs[place]] = now_ns - self._began_ns(place)
        self._seen, self._seen_ns = completed, now_ns

    def overdue(self, now_ns: int) -> bool:
        """Whether the round that runs has run longer than the limit; False where none does."""
        completed: int = self.word[0]
        if completed > self._seen:
            self._see(completed, now_ns)
        if completed >= self._submitted:
            return False
        return now_ns - self._began_ns((completed + 1) % TIMED_SEQUENCES) > self._limit_ns

    def _began_ns(self, place: int) -> int:
        """When the round there could begin, as far as it is known."""
        submitted_ns = self._submitted_ns[place]
        return submitted_ns if submitted_ns > self._seen_ns else self._seen_ns

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Looks at the word again and again, letting go of the GIL in between."""
        if self.completed() >= sequence:
            return True
        word, sleep, let_go, clock = self.word, time.sleep, _NOBODY.poll, time.monotonic_ns
        now = clock()
        deadline, query = now + timeout_ms * 1_000_000, now + QUERY_NS
        spin_from, spin_to = self._spinning(sequence) if self.spins else (0, 0)
        while word[0] < sequence:
            if spin_from <= now < spin_to:
                let_go(0)
            else:
                sleep(_LOOK_S)
            now = clock()
            if now >= query:
                self.look(now)
                query = now + QUERY_NS
            if now >= deadline:
                break
        return self.completed() >= sequence

    def _spinning(self, sequence: int) -> tuple[int, int]:
        """From when to when looks come without a pause."""
        place = sequence % TIMED_SEQUENCES
        took_ns = self._took_ns.get(self._programs[place])
        if took_ns is None:
            return 0, 0
        end = self._began_ns(place) + took_ns
        return end - _SPIN_BEFORE_NS, end + _SPIN_AFTER_NS

    def look(self, now_ns: int) -> None:
        """Raises what the driver knows of the rounds, or that one doesn't end."""
        status = self._ask_driver()
        running = self.word[0] + 1
        if running > self._submitted:
            return
        if status == SUCCESS:
            raise self.fail(
                ExecutionError(
                    "its kernels ended without releasing its sequence",
                    where=name_of(running),
                    remedy="Prepare the core again with this version of Ignition",
                )
            )
        if status != NOT_READY:
            raise self.fail(failure(self._gpu.driver, status, f"running {name_of(running)}"))
        if self.overdue(now_ns):
            raise self.fail(
                ExecutionError(
                    f"hasn't ended after {self._limit_ns / 1e9:g} s",
                    where=name_of(running),
                    remedy="Start again; where it comes back, report it with the core's digest",
                )
            )

    def _ask_driver(self) -> int:
        """How the stream of rounds is, or why it can't be asked."""
        if in_thread.gpu is not self._gpu:
            try:
                self._gpu.make_current()
            except DriverError as error:
                return error.code
        (status,) = self._gpu.driver.cuStreamQuery(self._gpu.stream)
        return int(status)

    def fail(self, error: ExecutionError) -> ExecutionError:
        """Keeps the first failure; returns it."""
        if self.failure is None:
            self.failure = error
        return self.failure

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) as the GPU stamped them, on the host's clock."""
        completed = self.completed()
        if not self._submitted - TIMED_SEQUENCES < sequence <= completed:
            raise ExecutionError(
                f"sequence {sequence} is not among the last {TIMED_SEQUENCES}",
                where="cuda device",
                remedy="Read a round's timing soon after it completes",
            )
        place = sequence % TIMED_SEQUENCES
        start, end = self._times[2 * place], self._times[2 * place + 1]
        submitted_ns = self._submitted_ns[place]
        return self._clock.times(submitted_ns, start, end, self._seen_ns)

    def calibrate(self, sequence: int) -> None:
        """Tells the GPU's clock by a round that has run and has just been seen to."""
        place = sequence % TIMED_SEQUENCES
        start, end = self._times[2 * place], self._times[2 * place + 1]
        submitted_ns = self._submitted_ns[place]
        self._clock.calibrate(submitted_ns, start, end, time.monotonic_ns())

    def forget(self) -> None:
        """Sequences begin anew."""
        self.word[0] = 0
        self._submitted = self._seen = 0
