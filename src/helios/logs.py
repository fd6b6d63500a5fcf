"""Sends what Helios's loggers say to standard error, for its own processes.

Only the command line and the processes of a server ask for it: a program that imports Helios
decides itself what becomes of its loggers. A server's processes write their lines in a thread of
their own (`logging_to_stderr`): who logs never waits for whoever reads standard error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final, Literal

from helios.dataclass import dataclass
from helios.log_lines import FIELDS, REQUEST_ID, JsonLines, TextLines
from helios.wording import escaped

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

# The request that a task works on; what it logs carries the id.
CURRENT_REQUEST: Final[ContextVar[str]] = ContextVar("helios request", default="")

_CAPACITY: Final = 8192
_CLOSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What a server's processes log and how."""

    level: LogLevel = "info"
    format: LogFormat = "text"


class _OneLine(logging.Formatter):
    """Messages may name what others wrote, which a terminal mustn't obey."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))


def log_to_stderr() -> None:
    """Prints messages of the `helios` loggers, one a line; warnings and what takes long."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("helios: %(message)s"))
    logger = logging.getLogger("helios")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


@contextlib.contextmanager
def logging_to_stderr(options: LogOptions, process: str) -> Iterator[None]:
    """Writes the lines of this process to standard error until the block ends, instead of what
    `log_to_stderr` does: Helios's from the level on, other libraries' warnings. `process` names it
    in the lines."""
    formatter = JsonLines(process) if options.format == "json" else TextLines(process)
    writer = LineWriter(sys.stderr.fileno(), formatter)
    root, ours = logging.getLogger(), logging.getLogger("helios")
    before, level = list(ours.handlers), ours.level
    for handler in before:
        ours.removeHandler(handler)
    root.addHandler(writer)
    ours.setLevel(options.level.upper())
    try:
        yield
    finally:
        root.removeHandler(writer)
        for handler in before:
            ours.addHandler(handler)
        ours.setLevel(level)
        writer.close()


class LineWriter(logging.Handler):
    """Hands records to a thread that formats and writes them.

    Who logs only appends to a queue of `capacity` records. Where writing falls behind, as when
    nobody reads the other end of a pipe, further records are counted and dropped, and the next
    line that can be written says how many.
    """

    def __init__(
        self, descriptor: int, formatter: logging.Formatter, capacity: int = _CAPACITY
    ) -> None:
        super().__init__()
        self.dropped = 0
        self._descriptor = descriptor
        self._formatter = formatter
        self._capacity = capacity
        self._waiting: deque[logging.LogRecord] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._unsaid = 0
        self._thread = threading.Thread(target=self._write, name="helios log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a record; its arguments are read now, since they may change."""
        record.msg, record.args = record.getMessage(), None
        setattr(record, REQUEST_ID, CURRENT_REQUEST.get())
        with self._changed:
            if self._ended or len(self._waiting) >= self._capacity:
                self.dropped += 1
                self._unsaid += 1
                return
            self._waiting.append(record)
            self._changed.notify()

    def close(self) -> None:
        """Writes what is queued, as far as its reader takes it in two seconds."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(_CLOSE_SECONDS)
        super().close()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ended:
                    self._changed.wait()
                records = list(self._waiting)
                self._waiting.clear()
                unsaid, self._unsaid = self._unsaid, 0
                ended = self._ended
            try:
                for record in records:
                    self._write_line(record)
                if unsaid:
                    self._write_line(_dropped(unsaid))
            except OSError:
                pass  # nobody reads standard error any more
            if ended and not records:
                return

    def _write_line(self, record: logging.LogRecord) -> None:
        # In one piece, so that lines of several processes don't mix; and past Python's own buffers,
        # whose locks a thread that is stuck here would keep at the process's end.
        line = f"{self._formatter.format(record)}\n".encode(errors="backslashreplace")
        while line:
            try:
                line = line[os.write(self._descriptor, line) :]
            except BlockingIOError:  # somebody who shares the pipe made it so
                select.select([], [self._descriptor], [])


def _dropped(count: int) -> logging.LogRecord:
    record = logging.LogRecord(
        __name__, logging.WARNING, __file__, 0, "log lines were dropped", None, None
    )
    setattr(record, FIELDS, {"count": count})
    return record
