"""Processes of the engines that are compared: started, asked, stopped so that they leave the
machine to the others while it isn't their turn, and ended. Each has a process group of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from .environments import Unavailable, last_line
from .machine import Memory, resident

_END_S = 20.0
_ANSWER_S = 600.0


class Group:
    """A process and what it starts, in a group of their own."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], *, asked: bool
    ) -> None:
        self._log = log
        pipe = subprocess.PIPE if asked else subprocess.DEVNULL
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe if asked else errors, stderr=errors, text=True,
                env={**os.environ, **environment}, start_new_session=True,
            )  # fmt: skip

    def rest(self) -> None:
        """Lets it stand still."""
        self._signal(signal.SIGSTOP)

    @contextmanager
    def awake(self) -> Iterator[Self]:
        """It runs while the block does, and stands still after."""
        self._signal(signal.SIGCONT)
        try:
            yield self
        finally:
            self.rest()

    def memory(self) -> Memory:
        """What it has resident now."""
        return resident(self.process.pid)

    def complaint(self) -> str:
        """The last line that it wrote to its log."""
        return last_line(self._log.read_text(errors="replace"))

    def close(self) -> None:
        """Ends it, gently first."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return


class Driver(Group):
    """An engine that answers requests, a line of JSON each (benchmarks/peers/line_protocol.py)."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        super().__init__(command, log, environment, asked=True)
        self._line()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One request's answer. Raises Unavailable with the engine's words where it can't."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        watch = threading.Timer(_ANSWER_S, self._signal, [signal.SIGKILL])
        watch.start()
        line = self.process.stdout.readline()
        watch.cancel()
        if not line:
            self.process.wait()
            raise Unavailable(self.complaint())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Unavailable(answer["error"])
        return answer
