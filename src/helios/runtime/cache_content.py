"""The bytes of cache pages and of snapshots, copied out of the device's buffers and back in.

A page's content is its row in every plane that has one a page, in the manifest's order; a
snapshot's is its state rows in every buffer that has such rows. Two runtimes with equal
`layout_digest`s, core, kernel path and version understand each other's content. Nothing here is
told of rounds: the caller sees to it that none in flight writes what is read, nor touches what is
written. So published pages and snapshots may be read at any time, by any thread, and free ones
written by the thread that submits rounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helios.errors import ExecutionError
from helios.runtime.device import Device, MemoryPlan
from helios.runtime.manifest import LeadingCount
from helios.runtime.state_rows import StateRows

Content = bytes | bytearray | memoryview


class CacheContent:
    """Reads and writes pages 0 … pages − 1 and snapshots 0 … snapshots − 1 of a device whose
    memory is allocated. Content is flat bytes, `page_nbytes` or `snapshot_nbytes` of them."""

    def __init__(
        self, device: Device, plan: MemoryPlan, *, page_tokens: int, state_rows: StateRows
    ) -> None:
        self._device = device
        self._pages = plan.counts.get(LeadingCount.CACHE_PAGES, 0)
        self._rows = state_rows
        self._page_planes = _buffers(plan, LeadingCount.CACHE_PAGES)
        self._state_buffers = _buffers(plan, LeadingCount.SNAPSHOT_ROWS)
        self.page_nbytes = sum(device.row_nbytes(plane) for plane in self._page_planes)
        self.snapshot_nbytes = state_rows.per_request * sum(
            device.row_nbytes(buffer) for buffer in self._state_buffers
        )
        layout = [f"page_tokens {page_tokens}", f"state_rows {state_rows.per_request}"]
        for index in (*self._page_planes, *self._state_buffers):
            buffer = plan.buffers[index].buffer
            layout.append(
                f"{buffer.leading.name} {buffer.name} {buffer.dtype.name} {list(buffer.shape)}"
                f" {device.row_nbytes(index)}"
            )
        self.layout_digest = hashlib.sha256("\n".join(layout).encode()).digest()

    def read_page(self, page: int) -> memoryview:
        """A copy of a page's content."""
        self._check("page", page, self._pages)
        return self._read(self._page_planes, page, 1, self.page_nbytes)

    def write_page(self, page: int, content: Content) -> None:
        """Replaces a page's content. Raises ExecutionError for content of another size."""
        self._check("page", page, self._pages)
        self._write(self._page_planes, page, 1, _flat(content, self.page_nbytes, f"page {page}"))

    def read_snapshot(self, index: int) -> memoryview:
        """A copy of a snapshot's content."""
        self._check("snapshot", index, self._rows.snapshots)
        first, count = self._rows.snapshot(index), self._rows.per_request
        return self._read(self._state_buffers, first, count, self.snapshot_nbytes)

    def write_snapshot(self, index: int, content: Content) -> None:
        """Replaces a snapshot's content. Raises ExecutionError for content of another size."""
        self._check("snapshot", index, self._rows.snapshots)
        first, count = self._rows.snapshot(index), self._rows.per_request
        flat = _flat(content, self.snapshot_nbytes, f"snapshot {index}")
        self._write(self._state_buffers, first, count, flat)

    def _check(self, what: str, index: int, count: int) -> None:
        if not 0 <= index < count:
            raise ExecutionError(f"there are {count}", where=f"{what} {index}")

    def _read(self, buffers: Sequence[int], first: int, count: int, nbytes: int) -> memoryview:
        content = np.empty(nbytes, np.uint8)
        start = 0
        for buffer in buffers:
            end = start + count * self._device.row_nbytes(buffer)
            self._device.read_rows(buffer, first, content[start:end])
            start = end
        return content.data

    def _write(
        self, buffers: Sequence[int], first: int, count: int, content: NDArray[np.uint8]
    ) -> None:
        start = 0
        for buffer in buffers:
            end = start + count * self._device.row_nbytes(buffer)
            self._device.write_rows(buffer, first, content[start:end])
            start = end


def _buffers(plan: MemoryPlan, leading: LeadingCount) -> tuple[int, ...]:
    return tuple(
        index for index, planned in enumerate(plan.buffers) if planned.buffer.leading is leading
    )


def _flat(content: Content, nbytes: int, where: str) -> NDArray[np.uint8]:
    # numpy refuses to look into an empty buffer.
    flat = np.frombuffer(content, np.uint8) if len(content) else np.empty(0, np.uint8)
    if flat.nbytes != nbytes:
        raise ExecutionError(f"{flat.nbytes} bytes of content for {nbytes}", where=where)
    return flat
