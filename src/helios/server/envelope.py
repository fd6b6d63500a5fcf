"""What every request has, whatever it asks: an id, a place below the root path, a line in the
access log, and a response even where something unexpected happens.

The outermost of the ASGI applications that `app` puts together.
"""

from __future__ import annotations

import logging
import re
import uuid
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from helios.logs import CURRENT_REQUEST
from helios.server import access_log
from helios.server.access_log import AccessRecord
from helios.server.delivery import lent_connection
from helios.server.failures import internal_error
from helios.server.metrics import HttpMetrics
from helios.server.responses import send_error
from helios.server.route_paths import route_path

_log: Final = logging.getLogger(__name__)
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Envelope:
    """Wraps `app`. `root_path` is where clients see it: a proxy may take that off paths or leave
    it. With `log_access` each request gets a line."""

    def __init__(
        self, app: ASGIApp, metrics: HttpMetrics, *, root_path: str = "", log_access: bool = True
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._root_path = root_path
        self._log_access = log_access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes HTTP requests on; other messages of the server too, as they are."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._place(scope)
        record = _record(scope)
        access_log.attach(scope, record)
        CURRENT_REQUEST.set(record.request_id)
        connection = lent_connection(scope)
        written = 0 if connection is None else connection.written_nbytes

        async def send_with_id(message: Message) -> None:
            # A client that has gone gets nothing; asyncio would complain of what is written to it.
            if connection is not None and connection.transport.is_closing():
                return
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = record.request_id
                record.status = message["status"]
                path = getattr(scope.get("route"), "path", "other")
                self._metrics.responses[(path, record.status)] += 1
            else:
                record.response_nbytes += len(message.get("body", b""))
                record.complete = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            pass  # while its body was read; the log says that nothing was sent
        except Exception:
            _log.exception("an unexpected error")
            record.error = "internal_error"
            if not record.status:
                await send_error(internal_error(), scope, receive, send_with_id)
        finally:
            if connection is not None:
                record.response_nbytes += connection.written_nbytes - written
            if self._log_access:
                access_log.write(record)

    def _place(self, scope: Scope) -> None:
        """Puts the request's path below the root path, where the router looks for it."""
        root = self._root_path
        if not root:
            return
        path = scope["path"]
        if path != root and not path.startswith(f"{root}/"):
            scope["path"] = root + path
        scope["root_path"] = root


def _record(scope: Scope) -> AccessRecord:
    given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    client = scope.get("client") or ("",)
    return AccessRecord(
        request_id=given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex,
        method=scope["method"],
        path=route_path(scope),
        client=client[0],
    )
