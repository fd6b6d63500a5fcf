"""Fetches the chunks of a resource from its mirrors into a file, each checked before it is written.

Several connections at a time, each with its own client. A mirror that fails is asked again after a
pause; one that lies, or fails too often, is left for the next, and comes last for what is fetched
afterwards. `cache` is the caller, which knows what a file lacks and what becomes of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final

import httpx

from helios.core.addresses import Endpoints
from helios.core.chunks import Committed, check_chunk, chunk_nbytes
from helios.core.format import CHUNK_NBYTES
from helios.core.mirror import MirrorClient, MirrorFailed, MirrorRefused, MirrorSlow, Patience
from helios.core.mirror_choice import Choice, MirrorRecord, ResourceMirrors
from helios.core.shown_uris import shown_uri
from helios.errors import CoreError

_CONNECTIONS: Final = 4


class MirrorsExhausted(CoreError):
    """No mirror has the content. `reasons` says why, a line a mirror."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(
            "; ".join(reasons), remedy="Try again, which goes on from here, or get the whole core"
        )
        self.reasons = reasons


class Fetcher:
    """Settings, look-ups and experiences that fetches share; one for each opening of a core.
    `allow_private` lets locations name private addresses. `clock`, in seconds, is what mirrors'
    rates are measured by."""

    def __init__(
        self,
        *,
        allow_private: bool,
        patience: Patience | None = None,
        endpoints: Endpoints | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allow_private = allow_private
        self._patience = patience or Patience()
        self._endpoints = endpoints or Endpoints()
        self._clock = clock
        self._record = MirrorRecord()
        self._tls = httpx.create_ssl_context()

    def fetch(
        self, content: Committed, urls: Sequence[str], descriptor: int, missing: Sequence[int]
    ) -> None:
        """Writes the missing chunks into an open file. Those that are written are right, also
        when this fails: it raises MirrorsExhausted, or OSError where the file can't be written."""
        mirrors = ResourceMirrors(urls, self._record)
        numbers = iter(missing)  # `next` on it is atomic: the threads share it
        ended = threading.Event()

        def work() -> None:
            client = MirrorClient(
                self._endpoints,
                self._patience,
                self._tls,
                allow_private=self._allow_private,
                ended=ended,
                clock=self._clock,
            )
            try:
                for number in numbers:
                    chunk = self._obtain(client, content, number, mirrors, ended)
                    _write(descriptor, chunk, number * CHUNK_NBYTES)
            finally:
                client.close()

        with ThreadPoolExecutor(_CONNECTIONS, "helios fetch") as pool:
            try:
                working = [pool.submit(work) for _ in range(min(_CONNECTIONS, len(missing)))]
                for done in wait(working, return_when=FIRST_EXCEPTION).done:
                    done.result()
            finally:
                ended.set()  # an error or an interrupt leaves nothing to do for the others
                for _ in numbers:
                    pass

    def _obtain(
        self,
        client: MirrorClient,
        content: Committed,
        number: int,
        mirrors: ResourceMirrors,
        ended: threading.Event,
    ) -> bytes:
        """A chunk that is what was signed, from the best mirror that has it."""
        while (choice := mirrors.choose()) is not None:
            try:
                return self._ask(client, content, number, choice, mirrors, ended)
            except MirrorRefused as error:
                mirrors.drop(choice.url, error.what, of_file=error.of_file)
            except MirrorFailed as error:
                if ended.is_set():
                    raise  # for that, and not for the mirror
                if isinstance(error, MirrorSlow):
                    mirrors.put_last(choice.url)
                else:
                    mirrors.drop(choice.url, error.what, of_file=False)
        raise MirrorsExhausted(mirrors.reasons())

    def _ask(
        self,
        client: MirrorClient,
        content: Committed,
        number: int,
        choice: Choice,
        mirrors: ResourceMirrors,
        ended: threading.Event,
    ) -> bytes:
        """A chunk from one mirror, asked as often as patience allows, but no more once another
        thread has dropped it. Raises MirrorSlow where another mirror should be asked instead."""
        patience = self._patience
        where = shown_uri(choice.url)
        pause_s = patience.pause_s
        for attempt in range(1, patience.attempts + 1):
            try:
                chunk = client.read_range(
                    choice.url,
                    number * CHUNK_NBYTES,
                    chunk_nbytes(content, number),
                    content.stored_nbytes,
                    brisk=choice.brisk,
                )
            except MirrorFailed as error:
                if choice.brisk and isinstance(error, MirrorSlow):
                    raise
                if (
                    attempt == patience.attempts
                    or ended.is_set()
                    or not mirrors.is_live(choice.url)
                ):
                    often = f", {attempt} times" if attempt > 1 else ""
                    raise MirrorFailed(f"{error.what}{often}", where=where) from error
                ended.wait(min(max(pause_s, error.wait_s), patience.longest_pause_s))
                pause_s *= 2
                continue
            try:
                check_chunk(content, number, chunk, where)
            except CoreError as error:
                raise MirrorRefused(error.what, where=where) from error
            return chunk
        raise AssertionError("the last attempt returns or raises")


def _write(descriptor: int, chunk: bytes, position: int) -> None:
    view = memoryview(chunk)
    while view:
        count = os.pwrite(descriptor, view, position)
        view, position = view[count:], position + count
