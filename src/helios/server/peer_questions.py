"""What HTTP processes ask each other, so that each answers for all: counts for `/metrics`, and the
end of a request that another one has.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from helios.errors import HeliosError
from helios.server.http_snapshot import HttpSnapshot
from helios.server.known_snapshots import KnownSnapshots, NumberedSnapshot
from helios.server.lifecycle import Lifecycle
from helios.server.metrics import HttpMetrics
from helios.server.running import RunningRequests

_ANSWER_SECONDS: Final = 1.0
_SNAPSHOT: Final = "snapshot"
_ABORT: Final = "abort"
_FOUND: Final = b"found"
_Snapshots = list[NumberedSnapshot]


class PeerQuestions:
    """This process's own answers, and those of all."""

    def __init__(
        self, lifecycle: Lifecycle, metrics: HttpMetrics, running: RunningRequests
    ) -> None:
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._running = running
        self._known = KnownSnapshots()

    def answer(self, kind: str, payload: bytes) -> bytes:
        """What this process says to another one's question; nothing to one that it doesn't know."""
        if kind == _SNAPSHOT:
            theirs = msgspec.msgpack.decode(payload, type=_Snapshots)
            self._known.learn(theirs)
            self._take_own()
            return msgspec.msgpack.encode((self._known.process, self._known.later_than(theirs)))
        if kind == _ABORT and self._running.abort(payload.decode()):
            return _FOUND
        return b""

    async def snapshot(self) -> HttpSnapshot:
        """What all processes have counted, and what those hold now that answer in time."""
        self._take_own()
        here = {self._known.process}
        for answer in await self._ask(_SNAPSHOT, msgspec.msgpack.encode(self._known.all())):
            process, snapshots = msgspec.msgpack.decode(answer, type=tuple[str, _Snapshots])
            here.add(process)
            self._known.learn(snapshots)
        return self._known.total(here)

    def _take_own(self) -> None:
        self._known.take(self._metrics.snapshot(self._lifecycle.model))

    async def abort(self, name: str) -> bool:
        """Ends every request of this name in any process; whether there is one."""
        here = self._running.abort(name)
        return _FOUND in await self._ask(_ABORT, name.encode()) or here

    async def _ask(self, kind: str, payload: bytes) -> list[bytes]:
        model = self._lifecycle.model
        if model is None:
            return []
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await model.client.ask_peers(kind, payload)
        except (HeliosError, TimeoutError):
            return []
