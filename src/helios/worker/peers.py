"""What HTTP processes ask each other: a question goes to all others at once, through the worker.

Part of `client`, which posts and hears the messages. A process that is alone asks nobody.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from helios.errors import HeliosError
from helios.worker.peer_messages import Ask, Asked, AskedAnswer, AskResult

# Answers a question of a kind; runs on the event loop's thread and returns at once.
AnswerPeer = Callable[[str, bytes], bytes]


class Peers:
    """Questions that wait for their answers, and who answers those of others. Until `answer` is
    set others get empty answers."""

    def __init__(self, post: Callable[[Ask | AskedAnswer], None]) -> None:
        self._post = post
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[list[bytes]]] = {}
        self.answer: AnswerPeer | None = None

    async def ask(self, kind: str, payload: bytes) -> list[bytes]:
        """What the others answer, those that are there and have something to say. Waits for a
        process that is stuck; raises the worker's failure if it dies meanwhile."""
        number = next(self._numbers)
        answers: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answers
        try:
            self._post(Ask(number, kind, payload))
            return [answer for answer in await answers if answer]
        finally:
            del self._waiting[number]

    def hear(self, message: Asked | AskResult) -> None:
        """A question of another process, or the answers to one of this process's."""
        if isinstance(message, Asked):
            payload = self.answer(message.kind, message.payload) if self.answer else b""
            self._post(AskedAnswer(message.asker, message.ask, payload))
            return
        waiting = self._waiting.get(message.ask)
        if waiting is not None and not waiting.done():
            waiting.set_result(message.answers)

    def fail(self, failure: HeliosError) -> None:
        """Nothing more will be heard."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(failure)
