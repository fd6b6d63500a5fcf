"""Server-sent events: frames, headers, and how a stream ends well or badly."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec
from starlette.types import Send

from helios.server.failures import ApiError, internal_error

_log = logging.getLogger(__name__)

DONE: Final = b"data: [DONE]\n\n"
_HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


async def send_stream(
    send: Send, events: AsyncGenerator[bytes, None], headers: dict[str, str]
) -> None:
    """Sends each event as it comes, then `[DONE]`.

    Headers leave before the first event. An ApiError among the events becomes one last error
    event, and no `[DONE]` follows it; so does any other exception, which is a bug and is logged.
    """
    raw = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in (_HEADERS | headers).items()]
    await send({"type": "http.response.start", "status": 200, "headers": raw})
    end = DONE
    async with aclosing(events):
        try:
            async for event in events:
                await _send_body(send, frame(event), more=True)
        except ApiError as error:
            end = frame(msgspec.json.encode(error.body))
        except Exception:
            _log.exception("a stream's answer can't be written")
            end = frame(msgspec.json.encode(internal_error().body))
    await _send_body(send, end, more=False)


def frame(event: bytes) -> bytes:
    """One event; `event` is JSON and so has no line break."""
    return b"data: " + event + b"\n\n"


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
