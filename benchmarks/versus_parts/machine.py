"""What the machine does meanwhile: how far apart its processors are, its load, and how much memory
a tree of processes has.
"""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path

_ROUNDS = 1000
_TRIES = 50


class PingPong:
    """Measures what a cache line takes from one processor to the other, compiled once."""

    def __init__(self, folder: Path) -> None:
        library = folder / "ping_pong.so"
        source = Path(__file__).with_name("ping_pong.cpp")
        options = ["-O2", "-std=c++20", "-shared", "-fPIC", "-pthread"]
        subprocess.run(["c++", *options, str(source), "-o", str(library)], check=True)
        self._one_way_ns = ctypes.CDLL(str(library)).one_way_ns
        self._one_way_ns.restype = ctypes.c_double

    def one_way_ns(self, first: int = 0, second: int = 1) -> float:
        """Nanoseconds one way, the least of some tries: what other work adds is no distance."""
        return float(min(self._one_way_ns(first, second, _ROUNDS) for _ in range(_TRIES)))


@dataclass(frozen=True)
class Memory:
    """Resident bytes of some processes: what each has, added up, and with what they share counted
    once in all."""

    rss_nbytes: int
    pss_nbytes: int

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.rss_nbytes + other.rss_nbytes, self.pss_nbytes + other.pss_nbytes)


def processes(root: int) -> list[int]:
    """A process and all that descend from it."""
    found = [root]
    for pid in found:
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:  # it ended meanwhile
            continue
    return found


def resident(root: int) -> Memory:
    """Memory of a process and all that descend from it."""
    total = Memory(0, 0)
    for pid in processes(root):
        try:
            total += parse_rollup(Path(f"/proc/{pid}/smaps_rollup").read_text())
        except OSError:
            continue
    return total


def parse_rollup(text: str) -> Memory:
    """Memory of one process, as the kernel writes it in `smaps_rollup`."""
    kib = {}
    for line in text.splitlines()[1:]:
        name, value, *_ = line.split()
        kib[name.rstrip(":")] = int(value)
    return Memory(kib["Rss"] * 1024, kib["Pss"] * 1024)


def load() -> float:
    """The machine's load, of the last minute."""
    return float(Path("/proc/loadavg").read_text().split()[0])
