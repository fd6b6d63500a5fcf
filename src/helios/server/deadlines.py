"""When a request has to be answered: `--request-timeout`.

The time runs from the end of the request's body. It bounds preparation and generation, not how
long a reader takes for what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from helios.server.failures import ApiError


class Deadline:
    """`seconds` after `began`, on the event loop's clock; never, if that is None."""

    def __init__(self, began: float, seconds: float | None) -> None:
        self._seconds = seconds
        self._when = None if seconds is None else began + seconds

    @asynccontextmanager
    async def bounds(self) -> AsyncIterator[None]:
        """Cancels what the block waits for. Raises ApiError 504 then."""
        if self._when is None:
            yield
            return
        try:
            async with asyncio.timeout_at(self._when):
                yield
        except TimeoutError:
            raise self._error() from None

    @contextmanager
    def calls(self, end: Callable[[ApiError], None]) -> Iterator[None]:
        """Calls `end` with a 504 if the block lasts too long."""
        if self._when is None:
            yield
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_at(self._when, lambda: end(self._error()))
        try:
            yield
        finally:
            timer.cancel()

    def _error(self) -> ApiError:
        return ApiError(
            504,
            f"the request wasn't answered within {self._seconds:g} s, this server's limit. Ask for"
            " fewer tokens, or when there is less to do",
            code="request_timeout",
        )
