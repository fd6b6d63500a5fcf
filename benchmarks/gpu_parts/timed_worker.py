"""A model worker on a thread that tells when each token left it, and what its loop did meanwhile.

No frontend runs beside it: tokens are counted as they leave the worker, which is where a server's
own process takes over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from types import TracebackType
from typing import Self

from helios.scheduler import SchedulerOptions
from helios.worker.channel import InProcessChannel
from helios.worker.messages import FromWorker, Sampling, Shutdown, Submit, Taken, TokensEvent
from helios.worker.model_worker import ModelWorker
from helios.worker.options import WorkerOptions
from helios.worker.startup import load_model

GREEDY = Sampling(0.0, 0, 1.0, 0.0, 0)


@dataclass(slots=True)
class Arrivals:
    """When a request's first and last tokens left, in ns, and how many there were."""

    first_ns: int = 0
    last_ns: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Rounds:
    """Of each round by sequence: ns at which its submission ended, at which it was seen complete,
    and its (start, end) on the device."""

    submitted: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    ran: dict[int, tuple[int, int]] = field(default_factory=dict)

    def device_us(self) -> float:
        """Median time of a round on the device."""
        return median((end - start) / 1e3 for start, end in self.ran.values())

    def idle_us(self) -> float:
        """Median time between rounds in which the device does nothing."""
        return self._between(lambda n: self.ran[n + 1][0] - self.ran[n][1])

    def host_us(self) -> float:
        """Median time from seeing a round complete to having submitted the next one that was free
        to go: with one frame in flight the critical path."""
        return self._between(lambda n: self.submitted[n + 1] - self.seen[n])

    def _between(self, of: object) -> float:
        assert callable(of)
        pairs = [n for n in self.ran if n + 1 in self.ran]
        return median(of(n) / 1e3 for n in pairs[len(pairs) // 4 :])


class TimedWorker:
    """Loads a core as the server's worker does."""

    def __init__(
        self, core: str, accept: str, target: str, *, frames: int = 2, traced: bool = False
    ) -> None:
        self._model = load_model(
            WorkerOptions(
                core=core, accept=accept, allow_unknown_publisher=True, target=target,
                scheduler=SchedulerOptions(frames_in_flight=frames),
            )
        )  # fmt: skip
        self.ready = self._model.ready_message()
        self.rounds = Rounds()
        self._arrivals: dict[int, Arrivals] = {}
        self._left = 0
        self._ended = threading.Event()
        self._failure = ""
        self._ids = 0
        self._channel = InProcessChannel(self._deliver)
        worker = ModelWorker(
            self._model.runtime,
            self._channel,
            self._model.scheduler,
            trace=self._hear if traced else None,
        )
        self._thread = threading.Thread(target=worker.run)
        self._thread.start()

    def run(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[Arrivals]:
        """Greedy requests of so many tokens each, all at once."""
        self._arrivals = {self._ids + n: Arrivals() for n in range(len(prompts))}
        self._left = len(prompts)
        self._ended.clear()
        self.rounds = Rounds()
        submits = [
            Submit(self._ids + n, list(prompt), tokens, GREEDY, [])
            for n, prompt in enumerate(prompts)
        ]
        self._ids += len(prompts)
        self._channel.post(submits)
        self._ended.wait()
        if self._failure:
            raise SystemExit(f"the worker failed: {self._failure}")
        every = list(self._arrivals.values())
        if any(one.tokens != tokens for one in every):
            raise SystemExit("a request ended early")
        return every

    def close(self) -> None:
        """Ends the worker and lets go of the model."""
        self._channel.post([Shutdown()])
        self._thread.join()
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _deliver(self, messages: Sequence[FromWorker]) -> None:
        now = time.monotonic_ns()
        for message in messages:
            if isinstance(message, Taken):
                continue
            if not isinstance(message, TokensEvent):
                self._failure = str(message)
                self._left = 0
                break
            found = self._arrivals[message.request_id]
            if not found.tokens:
                found.first_ns = now
            found.last_ns = now
            found.tokens += len(message.tokens)
            self._left -= message.finish != 0
        if not self._left:
            self._ended.set()

    def _hear(self, step: str, sequence: int, began_ns: int, ended_ns: int, /) -> None:
        if step == "submit":
            self.rounds.submitted[sequence] = ended_ns
        elif step == "wait":
            self.rounds.seen[sequence] = ended_ns
            self.rounds.ran[sequence] = self._model.runtime.timing(sequence)
