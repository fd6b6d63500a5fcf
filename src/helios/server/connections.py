"""Connections whose clients have limited time for a request's head, and for being rid of.

uvicorn's protocol waits for ever for a head that has begun, and for the rest of a body that nobody
reads any more. Here each stage of a connection that only its client can end has a time:

- `HEAD`: nothing or a part of a head has arrived; then 408.
- `SURPLUS`: the response is out, but the request's body still comes; it is read and thrown away
  meanwhile, since a connection that is closed over unread bytes loses the response.
- between two requests uvicorn's keep-alive time runs.

The time for reading a body is `intake`'s, where the request has a route to answer by.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import sys
from http import HTTPStatus
from typing import Any, Final

import h11
import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from helios.log_lines import FIELDS
from helios.server.delivery import DeliveringProtocol, lent_connection
from helios.server.failures import ApiError
from helios.server.options.limits import LimitOptions
from helios.server.request_heads import AmbiguousLengthError, HeadReader
from helios.server.responses import send_error
from helios.server.route_paths import PROBES, route_path

_log: Final = logging.getLogger(__name__)
# Connections over the limit that are still answered: by a 503, probes as ever.
_RESERVE: Final = 64
_HEAD_NBYTES: Final = 16 << 10  # uvicorn's default


class _Stage(enum.Enum):
    """What a connection waits for."""

    HEAD = enum.auto()
    SURPLUS = enum.auto()
    OTHER = enum.auto()


class LimitedConnection(DeliveringProtocol):
    """A connection within `limits`; the other arguments are uvicorn's."""

    def __init__(self, limits: LimitOptions, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self.conn = HeadReader(self.config.h11_max_incomplete_event_size or _HEAD_NBYTES)
        self.over_limit = False
        self._limits = limits
        self._stage = _Stage.OTHER
        self._stage_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # -- what the transport calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        excess = len(self.connections) - self._limits.max_connections
        self.over_limit = excess > 0
        if excess > _RESERVE:
            self._dropped("too many connections")
        else:
            self._enter(_Stage.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was dropped."""
        self._enter(_Stage.OTHER)
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        super().data_received(data)
        self._enter(self._stage_now())

    def pause_writing(self) -> None:
        """The client doesn't take what is written."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """The client has taken everything."""
        self._stop_write_timer()
        super().resume_writing()

    # -- what uvicorn's protocol calls

    def on_response_complete(self) -> None:
        """A response is written."""
        super().on_response_complete()
        stage = self._stage_now()
        # Without a byte of a next request it is idle, which has uvicorn's own time.
        if stage is not _Stage.HEAD or self.conn.trailing_data[0]:
            self._enter(stage)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no HTTP."""
        fault = sys.exception()
        status = getattr(fault, "error_status_hint", 400)
        if isinstance(fault, AmbiguousLengthError):
            text, code = f"where the body ends is ambiguous: {fault}. Send one", "invalid_http"
        elif status == 431:
            text, code = "the request's head is too large. Send fewer headers", "head_too_large"
        else:
            text, code = "what arrived is no HTTP request. Send HTTP/1.1", "invalid_http"
        self._refuse(ApiError(status, text, code=code))

    # -- times

    def _stage_now(self) -> _Stage:
        if self.transport.is_closing():
            return _Stage.OTHER
        if self.conn.their_state is h11.IDLE:
            return _Stage.HEAD
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            return _Stage.SURPLUS
        return _Stage.OTHER

    def _enter(self, stage: _Stage) -> None:
        """A stage's time begins with it; bytes that don't end it don't prolong it."""
        if stage is self._stage:
            return
        self._stage = stage
        if self._stage_timer is not None:
            self._stage_timer.cancel()
            self._stage_timer = None
        if stage is _Stage.HEAD:
            self._stage_timer = self.loop.call_later(self._limits.head_timeout_s, self._head_late)
        elif stage is _Stage.SURPLUS:
            self._stage_timer = self.loop.call_later(
                self._limits.body_timeout_s, self._dropped, "a body that nobody reads"
            )

    def _head_late(self) -> None:
        if not self.conn.trailing_data[0]:
            self._dropped("no request")
            return
        seconds = self._limits.head_timeout_s
        text = f"the request's head didn't arrive within {seconds:g} s. Send it at once"
        self._refuse(ApiError(408, text, code="head_timeout"))

    def _start_write_timer(self) -> None:
        if self._limits.write_timeout_s is not None and self._write_timer is None:
            left = self.transport.get_write_buffer_size()
            self._write_timer = self.loop.call_later(
                self._limits.write_timeout_s, self._write_late, left
            )

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _write_late(self, left_before: int) -> None:
        self._write_timer = None
        if self.transport.get_write_buffer_size() < left_before:
            self._start_write_timer()
        else:
            self._dropped("an answer that isn't read")

    # -- ends

    def _refuse(self, error: ApiError) -> None:
        """Answers a client whose request has no head to answer by, and closes."""
        self._enter(_Stage.OTHER)
        self._say("refused", status=error.status, error=error.body.error.code)
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = msgspec.json.encode(error.body)
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        reason = HTTPStatus(error.status).phrase.encode()
        head = h11.Response(status_code=error.status, headers=headers, reason=reason)
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _dropped(self, cause: str) -> None:
        self._enter(_Stage.OTHER)
        self._say("dropped", cause=cause)
        self.transport.abort()

    def _say(self, what: str, **fields: Any) -> None:
        client = self.client[0] if self.client else ""
        _log.info(f"a connection was {what}", extra={FIELDS: {"client": client, **fields}})


class ConnectionLimit:
    """Refuses requests on connections over the limit, probes excepted: who watches the server
    should see that it lives."""

    def __init__(self, app: ASGIApp, limits: LimitOptions) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it with a 503."""
        connection = lent_connection(scope)
        over_limit = isinstance(connection, LimitedConnection) and connection.over_limit
        if not over_limit or route_path(scope) in PROBES:
            await self._app(scope, receive, send)
            return
        error = ApiError(
            503,
            f"more than {self._limits.max_connections} connections are open. Try again later",
            code="too_many_connections",
            retry_after_s=1,
            headers={"connection": "close"},
        )
        await send_error(error, scope, receive, send)
