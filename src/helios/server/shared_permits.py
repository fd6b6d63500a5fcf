"""Admission permits of several HTTP processes: counted in memory that they share, a cell each.

A process changes its own cell alone, so what a dead one held is known and comes back. Taking a
permit looks at all cells under a lock of the file behind the memory, which the kernel lets go of
when its holder dies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

from helios.errors import HeliosError


class SharedPermits:
    """The permits as one process sees them, whose number among them is `cell`."""

    def __init__(self, descriptor: int, processes: int, cell: int) -> None:
        self.descriptor = descriptor
        self._cell = cell
        size = processes * 4
        self._cells = memoryview(mmap.mmap(descriptor, size)).cast("I")

    @classmethod
    def create(cls, processes: int) -> SharedPermits:
        """Permits of so many processes, of which the caller is the first. The others inherit
        `descriptor`. Raises HeliosError where there is no memory to share."""
        try:
            descriptor = os.memfd_create("helios permits")
            os.ftruncate(descriptor, processes * 4)
        except OSError as error:
            raise HeliosError(
                f"memory can't be shared ({error.strerror})",
                where="--http-workers",
                remedy="Use one",
            ) from error
        return cls(descriptor, processes, 0)

    def take(self, capacity: int) -> bool:
        """Takes one of `capacity` permits, unless all are held."""
        with self._locked():
            if self.held >= capacity:
                return False
            self._cells[self._cell] += 1
            return True

    def give(self) -> None:
        """Gives one back."""
        self._cells[self._cell] -= 1

    def reclaim(self, cell: int) -> None:
        """Gives back all that a process held which has ended."""
        with self._locked():
            self._cells[cell] = 0

    @property
    def held(self) -> int:
        """Permits that all processes hold."""
        return sum(self._cells)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)
