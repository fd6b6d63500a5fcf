"""Log records as lines: text for people, JSON for collectors.

Whatever a message or a field contains, it stays within its line and its field, and nothing in it
is obeyed by a terminal: clients choose paths, ids and names, but can't forge a line.
"""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from collections.abc import Mapping
from typing import Any, Final

from helios.wording import escaped

# Attributes of a record: more fields of its line, and the request that it is about.
FIELDS: Final = "fields"
REQUEST_ID: Final = "request_id"

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:@+-]+")
_Fields = Mapping[str, Any]


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info http: message field=value`; a traceback follows in lines
    that begin with `  | `."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines, without a line break at the end."""
        head = f"{_time(record)} {record.levelname.lower()} {self._process}:"
        parts = [head, escaped(record.getMessage())]
        parts += [f"{name}={_text_value(value)}" for name, value in _fields(record).items()]
        lines = [" ".join(parts)]
        lines += [f"  | {escaped(line)}" for line in _traceback(record).splitlines()]
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    """One JSON object, in ASCII: `time`, `level`, `process`, `message`, then the fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The record's line, without a line break at the end."""
        shown: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "process": self._process,
            "message": record.getMessage(),
            **_fields(record),
        }
        if text := _traceback(record):
            shown["traceback"] = text
        # DEL is the one control character that ASCII JSON may contain as it is.
        return json.dumps(shown, default=str).replace("\x7f", "\\u007f")


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """The request's id first; fields that have no value are left out."""
    request_id = getattr(record, REQUEST_ID, "")
    fields = {REQUEST_ID: request_id} if request_id else {}
    more: _Fields = getattr(record, FIELDS, {})
    return fields | {name: value for name, value in more.items() if value not in (None, "", ())}


def _text_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text).replace("\x7f", "\\u007f")


def _traceback(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return record.exc_text or ""
    return "".join(traceback.format_exception(*record.exc_info))
