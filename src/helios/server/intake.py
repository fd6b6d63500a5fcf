"""Reading request bodies, bounded."""

from __future__ import annotations

from starlette.requests import Request

from helios.server.failures import ApiError
from helios.server.options.limits import LimitOptions


async def read_body(request: Request, limits: LimitOptions) -> bytes:
    """The whole body. Raises ApiError 413 as soon as it is known to be larger than the limit, and
    starlette's ClientDisconnect if the client goes away meanwhile."""
    limit_nbytes = limits.max_body_nbytes
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
