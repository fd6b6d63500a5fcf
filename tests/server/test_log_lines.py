"""Lines of the log: nothing in them can be forged, and nobody who logs waits for a reader."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helios.log_lines import FIELDS, REQUEST_ID, JsonLines, TextLines
from helios.logs import CURRENT_REQUEST, LineWriter, LogOptions, logging_to_stderr
from tests.server.test_cli_shown_text import ESCAPES

FORGED = f'x status=200\n2026-01-01T00:00:00.000Z info http: "request"{ESCAPES}\x7f\u2028\u0085'


def _record(message: str = "request", **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("helios.x", logging.INFO, "", 0, message, None, None)
    setattr(record, FIELDS, fields)
    return record


def test_text_says_when_what_and_where() -> None:
    record = _record(path="/v1/models", status=200, nothing=None, empty="", finish=("stop", "a b"))
    setattr(record, REQUEST_ID, "id-1")
    record.created, record.msecs = 1_700_000_000.25, 250.0
    assert TextLines("http").format(record) == (
        "2023-11-14T22:13:20.250Z info http: request request_id=id-1 path=/v1/models status=200"
        ' finish="stop,a b"'
    )


def test_json_is_one_object_with_the_same() -> None:
    record = _record(path="/v1/models", status=200, nothing=None, finish=("stop",))
    setattr(record, REQUEST_ID, "id-1")
    record.created, record.msecs = 1_700_000_000.25, 250.0
    assert json.loads(JsonLines("worker").format(record)) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "process": "worker",
        "message": "request",
        "request_id": "id-1",
        "path": "/v1/models",
        "status": 200,
        "finish": ["stop"],
    }


@pytest.mark.parametrize("lines", [TextLines("http"), JsonLines("http")])
def test_nothing_leaves_its_line_or_is_obeyed(lines: logging.Formatter) -> None:
    record = _record(FORGED, path=FORGED, ignored=(FORGED, FORGED))
    setattr(record, REQUEST_ID, FORGED)
    line = lines.format(record)
    assert line.isprintable()
    assert line.isascii() or isinstance(lines, TextLines)
    if isinstance(lines, JsonLines):
        assert json.loads(line)["path"] == FORGED
    else:
        # Whatever looks like another field is within quotes.
        assert ' path="x status=200' in line
        assert json.loads(line.split(" path=")[1].split(" ignored=")[0]) == FORGED


def test_a_traceback_stays_recognizable() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        record = _record("an unexpected error")
        import sys

        record.exc_info = sys.exc_info()
    first, *others = TextLines("http").format(record).split("\n")
    assert first.endswith("http: an unexpected error")
    assert all(line.startswith("  | ") and line.isprintable() for line in others)
    shown = json.loads(JsonLines("http").format(record))
    assert FORGED.split("\n")[0] in shown["traceback"]


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def test_who_logs_never_waits_and_what_is_lost_is_counted() -> None:
    """Nobody reads the pipe until it is full and the queue too."""
    with _pipe() as (reader, writing):
        writer = LineWriter(writing, TextLines("http"), capacity=10)
        long = "x" * 50_000
        for _ in range(100):
            writer.emit(_record(long))
        assert writer.dropped >= 100 - 10 - 10 - 2
        received = b""
        while b"log lines were dropped" not in received:
            received += os.read(reader, 1 << 16)
        written = received.count(b"info http: x")
        assert received.rstrip().endswith(b"count=%d" % writer.dropped)
        assert written + writer.dropped == 100
        writer.close()


def test_a_writer_that_is_stuck_ends_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helios.logs._CLOSE_SECONDS", 0.01)
    with _pipe() as (reader, writing):
        writer = LineWriter(writing, TextLines("http"))
        for _ in range(100):
            writer.emit(_record("x" * 50_000))
        writer.close()
        os.set_blocking(reader, False)
        assert os.read(reader, 1 << 16)
        monkeypatch.undo()
        # The thread goes on as far as it is read; then it ends.
        os.set_blocking(reader, True)
        while writer._thread.is_alive():
            os.set_blocking(reader, False)
            try:
                os.read(reader, 1 << 16)
            except BlockingIOError:
                writer._thread.join(0.01)


def test_a_reader_that_has_gone_ends_nothing() -> None:
    reader, writing = os.pipe()
    writer = LineWriter(writing, TextLines("http"))
    os.close(reader)
    for _ in range(10):
        writer.emit(_record())
    writer.close()
    assert not writer._thread.is_alive()
    os.close(writing)


def test_lines_carry_the_request_of_their_task_and_levels_count(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("helios.test")
    with logging_to_stderr(LogOptions("warning", "json"), "http"):
        token = CURRENT_REQUEST.set("id-7")
        logger.info("not shown")
        logger.warning("got %s", {"a": 1})
        CURRENT_REQUEST.reset(token)
        logger.error("without")
        logging.getLogger("another").warning("a library's")
        logging.getLogger("another").info("not shown")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["message"], line.get("request_id")) for line in lines] == [
        ("got {'a': 1}", "id-7"),
        ("without", None),
        ("a library's", None),
    ]
