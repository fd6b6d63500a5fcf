"""What the client has asked the worker besides requests, and hasn't heard yet.

The worker answers questions of a kind in the order in which they were asked.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import Any, TypeVar

from helios.errors import HeliosError
from helios.worker.messages import PrefixCacheReset, Progress, Statistics

Answer = TypeVar("Answer", Statistics, PrefixCacheReset, Progress)


class Questions:
    """Only touched by the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: defaultdict[type, deque[asyncio.Future[Any]]] = defaultdict(deque)

    def ask(self, kind: type[Answer]) -> asyncio.Future[Answer]:
        """What the next answer of this kind will be."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[kind].append(answer)
        return answer

    def answer(self, answer: Statistics | PrefixCacheReset | Progress) -> None:
        """The worker has answered; who asked may have gone."""
        asked = self._waiting[type(answer)].popleft()
        if not asked.done():
            asked.set_result(answer)

    def fail(self, failure: HeliosError) -> None:
        """There will be no answers any more."""
        for waiting in self._waiting.values():
            for asked in waiting:
                if not asked.done():
                    asked.set_exception(failure)
        self._waiting.clear()
