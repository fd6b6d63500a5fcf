"""What this process takes of the machine: memory and CPU time."""

from __future__ import annotations

import resource
from typing import Final

import msgspec

_PAGE_NBYTES: Final = resource.getpagesize()


class ProcessUsage(msgspec.Struct, frozen=True, array_like=True):
    """Resident memory now, CPU seconds of all threads since the process began."""

    resident_nbytes: int = 0
    cpu_s: float = 0.0

    def merge(self, other: ProcessUsage) -> ProcessUsage:
        """What both processes take. Pages that they share count twice."""
        return ProcessUsage(self.resident_nbytes + other.resident_nbytes, self.cpu_s + other.cpu_s)


def process_usage() -> ProcessUsage:
    """What this process takes. Memory is 0 where the system doesn't say (no /proc)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUsage(_resident_pages() * _PAGE_NBYTES, used.ru_utime + used.ru_stime)


def _resident_pages() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1])
    except OSError:
        return 0
