"""Weights from the mapped core to the GPU, through pinned memory.

Copying out of the page cache is slower than the bus, so several threads do it, each with two pieces
of pinned memory: one is filled while the other travels.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import cycle
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.phases import Phases
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.devices.cuda.pinned import PinnedMemory
from helios.wording import show_rate, show_size

_log = logging.getLogger(__name__)

PIECE_NBYTES: Final = 8 << 20
_PIECES: Final = 2
_THREADS: Final = 4
_NO_TIMING: Final = 2

_Part = tuple[int, NDArray[np.uint8]]


class Upload:
    """Resources on their way to their addresses, in threads of their own from now on."""

    def __init__(
        self,
        gpu: Gpu,
        resources: Mapping[str, memoryview],
        addresses: Mapping[str, int],
        phases: Phases,
    ) -> None:
        def run() -> None:
            gpu.make_current()
            with phases("weights_upload"):
                upload(gpu, resources, addresses)

        pool = ThreadPoolExecutor(1, thread_name_prefix="helios-weights")
        self._job = pool.submit(run)
        pool.shutdown(wait=False)

    def finish(self) -> None:
        """Returns once all of them are there. Raises DriverError, or ExecutionError where no memory
        can be pinned."""
        self._job.result()

    def over(self) -> None:
        """Returns once its threads have ended, whatever came of them: somebody who gives everything
        back has another error already, or this one."""
        wait([self._job])


@dataclass(frozen=True, slots=True)
class Staging:
    """Pinned memory through which resources travel: so many threads with their pieces."""

    threads: int
    piece_nbytes: int

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Staging:
        """What resources of so many bytes take."""
        sizes = list(sizes)
        parts = sum(-(-nbytes // PIECE_NBYTES) for nbytes in sizes)
        return cls(min(_THREADS, parts), min(PIECE_NBYTES, max(sizes, default=0)))

    @property
    def nbytes(self) -> int:
        """All of it."""
        return self.threads * _PIECES * self.piece_nbytes


def upload(gpu: Gpu, resources: Mapping[str, memoryview], addresses: Mapping[str, int]) -> None:
    """Copies every resource to its address; returns once all of it is there. Raises DriverError."""
    began = time.monotonic()
    nbytes = sum(content.nbytes for content in resources.values())
    staging = Staging.of(content.nbytes for content in resources.values())
    threads, size = staging.threads, staging.piece_nbytes
    if not threads:
        return
    # Pinned before there are threads: pinning takes the driver's lock for long.
    memory = PinnedMemory(gpu, staging.nbytes, "the upload of weights")
    try:
        pieces = [memory.view[at : at + size] for at in range(0, memory.view.nbytes, size)]
        queue, lock = _parts(resources, addresses), Lock()

        failed: list[BaseException] = []

        def take() -> _Part | None:
            with lock:
                return None if failed else next(queue, None)

        def carry(own: list[NDArray[np.uint8]]) -> None:
            try:
                _carry(gpu, take, own)
            except BaseException as error:
                failed.append(error)  # the others have no more to do

        with ThreadPoolExecutor(threads, thread_name_prefix="helios-weights") as pool:
            for i in range(threads):
                pool.submit(carry, pieces[_PIECES * i : _PIECES * (i + 1)])
        if failed:
            raise failed[0]  # what followed is its consequence
    finally:
        memory.close()
    rate = show_rate(nbytes, time.monotonic() - began)
    _log.info("weights: %s on the GPU%s", show_size(nbytes), f", {rate}" if rate else "")


def _parts(resources: Mapping[str, memoryview], addresses: Mapping[str, int]) -> Iterator[_Part]:
    for name, view in resources.items():
        content = np.frombuffer(view, np.uint8)
        for begin in range(0, content.nbytes, PIECE_NBYTES):
            yield addresses[name] + begin, content[begin : begin + PIECE_NBYTES]


def _carry(gpu: Gpu, take: Any, pieces: list[NDArray[np.uint8]]) -> None:
    """One thread's work: parts, as long as there are any."""
    gpu.make_current()
    driver = gpu.driver
    stream = gpu.call("making a stream", driver.cuStreamCreate, 1)
    events: list[Any] = []
    try:
        for _ in pieces:
            events.append(gpu.call("making an event", driver.cuEventCreate, _NO_TIMING))
        for number in cycle(range(len(pieces))):
            part = take()
            if part is None:
                break
            address, content = part
            gpu.call("copying weights", driver.cuEventSynchronize, events[number])
            piece = pieces[number][: content.nbytes]
            np.copyto(piece, content)
            gpu.call(
                "copying weights",
                driver.cuMemcpyHtoDAsync,
                address,
                piece.ctypes.data,
                piece.nbytes,
                stream,
            )
            gpu.call("copying weights", driver.cuEventRecord, events[number], stream)
        gpu.call("copying weights", driver.cuStreamSynchronize, stream)
    finally:
        for event in events:
            driver.cuEventDestroy(event)
        driver.cuStreamDestroy(stream)
