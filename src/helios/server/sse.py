"""Server-sent events: headers, frames, and how a stream ends well."""

from __future__ import annotations

from typing import Final

from starlette.types import Send

DONE: Final = b"data: [DONE]\n\n"
_HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


async def begin_stream(send: Send, headers: dict[str, str]) -> None:
    """Sends a stream's status and headers."""
    raw = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in (_HEADERS | headers).items()]
    await send({"type": "http.response.start", "status": 200, "headers": raw})


def frame(event: bytes) -> bytes:
    """One event; `event` is JSON and so has no line break."""
    return b"data: " + event + b"\n\n"
