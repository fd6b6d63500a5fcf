"""A model worker on a thread that tells when each token left it.

No frontend runs beside it: tokens are counted as they leave the worker, which is where a server's
own process takes over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

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


class TimedWorker:
    """Loads a core as the server's worker does."""

    def __init__(self, core: str, accept: str, target: str) -> None:
        self._model = load_model(
            WorkerOptions(core=core, accept=accept, allow_unknown_publisher=True, target=target)
        )
        self.ready = self._model.ready_message()
        self._arrivals: dict[int, Arrivals] = {}
        self._left = 0
        self._ended = threading.Event()
        self._failure = ""
        self._ids = 0
        self._channel = InProcessChannel(self._deliver)
        worker = ModelWorker(self._model.runtime, self._channel, self._model.scheduler)
        self._thread = threading.Thread(target=worker.run)
        self._thread.start()

    def run(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[Arrivals]:
        """Greedy requests of so many tokens each, all at once."""
        self._arrivals = {self._ids + n: Arrivals() for n in range(len(prompts))}
        self._left = len(prompts)
        self._ended.clear()
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
