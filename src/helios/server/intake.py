"""Reading request bodies, bounded."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from helios.server.failures import ApiError
from helios.server.options.limits import LimitOptions


async def read_body(request: Request, limits: LimitOptions) -> bytes:
    """The whole body. Raises ApiError 413 as soon as it is known to be larger than the limit, 408
    if it takes too long, 415 if it is compressed, and starlette's ClientDisconnect if the client
    goes away meanwhile."""
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            return await _read(request, limits.max_body_nbytes)
    except TimeoutError:
        raise ApiError(
            408,
            f"the body didn't arrive within {limits.body_timeout_s:g} s. Send it at once",
            code="body_timeout",
            headers={"connection": "close"},
        ) from None


async def _read(request: Request, limit_nbytes: int) -> bytes:
    coding = request.headers.get("content-encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        raise ApiError(
            415,
            f"Content-Encoding {coding[:64]!r} is not supported. Send the body as it is, without"
            " that header",
            code="unsupported_encoding",
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_nbytes:
        raise _too_large(limit_nbytes)
    pieces = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit_nbytes:
            raise _too_large(limit_nbytes)
        pieces.append(piece)
    return b"".join(pieces)


def _too_large(limit_nbytes: int) -> ApiError:
    return ApiError(
        413,
        f"the body is larger than {limit_nbytes} bytes. Send a smaller one",
        code="body_too_large",
    )
