"""Fetches the chunks of a resource from its mirrors into a file, each checked before it is written.

Several connections at a time, each with its own client. A mirror that fails is asked again after a
pause; one that lies, or fails too often, is left for the next. `cache` is the caller, which knows
what a file lacks and what becomes of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Final

import httpx

from helios.core.addresses import Endpoints
from helios.core.chunks import Committed, check_chunk, chunk_nbytes
from helios.core.format import CHUNK_NBYTES
from helios.core.mirror import MirrorClient, MirrorFailed, MirrorRefused, Patience
from helios.errors import CoreError

_CONNECTIONS: Final = 4


class MirrorsExhausted(CoreError):
    """No mirror has the content. `reasons` says why, a line a mirror."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class Fetcher:
    """Settings and look-ups that fetches share. `allow_private` lets locations name private
    addresses."""

    def __init__(
        self,
        *,
        allow_private: bool,
        patience: Patience | None = None,
        endpoints: Endpoints | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._patience = patience or Patience()
        self._endpoints = endpoints or Endpoints()
        self._tls = httpx.create_ssl_context()

    def fetch(
        self, content: Committed, urls: Sequence[str], descriptor: int, missing: Sequence[int]
    ) -> None:
        """Writes the missing chunks into an open file. Those that are written are right, also
        when this fails: it raises MirrorsExhausted, or OSError where the file can't be written."""
        mirrors = _Mirrors(urls)
        numbers = iter(missing)  # `next` on it is atomic: the threads share it
        ended = threading.Event()

        def work(_: None) -> None:
            client = MirrorClient(
                self._endpoints, self._patience, self._tls, allow_private=self._allow_private
            )
            try:
                for number in numbers:
                    chunk = self._obtain(client, content, number, mirrors, ended)
                    _write(descriptor, chunk, number * CHUNK_NBYTES)
            finally:
                client.close()

        threads = min(_CONNECTIONS, len(missing))
        with ThreadPoolExecutor(max(threads, 1), "helios fetch") as pool:
            try:
                for _ in pool.map(work, repeat(None, threads)):
                    pass
            finally:
                ended.set()  # an error or an interrupt leaves nothing to do for the others
                for _ in numbers:
                    pass

    def _obtain(
        self,
        client: MirrorClient,
        content: Committed,
        number: int,
        mirrors: _Mirrors,
        ended: threading.Event,
    ) -> bytes:
        """A chunk that is what was signed, from the first mirror that has it."""
        for url in mirrors.live():
            try:
                return self._ask(client, content, number, url, ended)
            except (MirrorRefused, MirrorFailed) as error:
                mirrors.drop(url, error.what)
        raise MirrorsExhausted(mirrors.reasons())

    def _ask(
        self,
        client: MirrorClient,
        content: Committed,
        number: int,
        url: str,
        ended: threading.Event,
    ) -> bytes:
        """A chunk from one mirror, asked as often as patience allows."""
        patience = self._patience
        pause_s = patience.pause_s
        for attempt in range(1, patience.attempts + 1):
            try:
                chunk = client.read_range(
                    url,
                    number * CHUNK_NBYTES,
                    chunk_nbytes(content, number),
                    content.stored_nbytes,
                )
            except MirrorFailed as error:
                if attempt == patience.attempts or ended.is_set():
                    raise MirrorFailed(f"{error.what}, {attempt} times", where=url) from error
                ended.wait(min(max(pause_s, error.wait_s), patience.longest_pause_s))
                pause_s *= 2
                continue
            try:
                check_chunk(content, number, chunk, url)
            except CoreError as error:
                raise MirrorRefused(error.what, where=url) from error
            return chunk
        raise AssertionError("the last attempt returns or raises")


class _Mirrors:
    """The URLs of one resource, and why some are no longer asked. Threads share it."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._reasons: dict[str, str | None] = dict.fromkeys(urls)
        self._changing = threading.Lock()

    def live(self) -> Iterator[str]:
        """Those to ask, in order; one that another thread drops meanwhile is left out."""
        for url in list(self._reasons):
            if self._reasons[url] is None:
                yield url

    def drop(self, url: str, reason: str) -> None:
        """Asks a mirror no more; the first reason stays."""
        with self._changing:
            if self._reasons[url] is None:
                self._reasons[url] = reason

    def reasons(self) -> list[str]:
        """Why each mirror was dropped."""
        return [f"{url}: {reason}" for url, reason in self._reasons.items() if reason]


def _write(descriptor: int, chunk: bytes, position: int) -> None:
    view = memoryview(chunk)
    while view:
        count = os.pwrite(descriptor, view, position)
        view, position = view[count:], position + count
