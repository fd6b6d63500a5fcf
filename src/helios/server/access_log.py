"""The access log: a line for each request, once it is over.

`Envelope` makes a record for each request; who knows more of it (the answer's id, how it ended)
adds it. Neither bodies nor queries nor headers get in: they may hold prompts and keys.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

from starlette.types import Scope

from helios.dataclass import dataclass
from helios.log_lines import FIELDS
from helios.server.ignored_fields import logged_names
from helios.server.route_paths import METRICS, PROBES, READY

_log: Final = logging.getLogger(__name__)
_STATE: Final = "access_record"
_PATH_LIMIT: Final = 256
# Asked every few seconds by machines; their lines would hide the others.
_QUIET_PATHS: Final = PROBES | {METRICS}


@dataclass(slots=True)
class AccessRecord:
    """What is known of a request so far. `status` is 0 until a response has begun; `complete`
    says that all of it was sent, `error` is the code of what went wrong."""

    request_id: str
    method: str
    path: str
    client: str
    began: float = field(default_factory=time.monotonic)
    status: int = 0
    response_nbytes: int = 0
    complete: bool = False
    answer_id: str = ""
    finish: Sequence[str] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ignored: tuple[str, ...] = ()
    error: str | None = None

    def line(self) -> dict[str, Any]:
        """The fields of its line; the request's id is in every line's."""
        return {
            "client": self.client[:_PATH_LIMIT],
            "method": self.method[:_PATH_LIMIT],
            "path": self.path[:_PATH_LIMIT],
            "status": self.status or None,
            "duration_ms": round((time.monotonic() - self.began) * 1e3, 1),
            "bytes": self.response_nbytes,
            "answer_id": self.answer_id,
            "finish": tuple(self.finish),
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "ignored": logged_names(self.ignored),
            "error": self.error,
            "disconnected": None if self.complete else True,
        }


def attach(scope: Scope, record: AccessRecord) -> None:
    """Makes `record` the one that `record_of` finds, and its id the request's."""
    scope.setdefault("state", {}).update({_STATE: record, "request_id": record.request_id})


def record_of(scope: Scope) -> AccessRecord:
    """The record of the request."""
    record: AccessRecord = scope["state"][_STATE]
    return record


def write(record: AccessRecord) -> None:
    """Logs a request that is over."""
    answered = record.complete and (record.status < 400 or record.path == READY)
    quiet = answered and record.path in _QUIET_PATHS
    level = logging.DEBUG if quiet else logging.INFO
    if _log.isEnabledFor(level):
        _log.log(level, "request", extra={FIELDS: record.line()})
