"""What the runtime asks of a device, and the memory plan it hands over.

A device backs a plan with memory, takes launch lists whose operands are indices into the plan's
buffers, and runs them one submission after the other. It knows nothing of requests, rounds or
contracts. Implementations: `devices.cpu` (native replayer), `devices.cuda` (graphs on a GPU),
`reference.device` (numpy).
`ModelRuntime` is the only caller.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from helios.dataclass import dataclass
from helios.runtime.manifest import Buffer, BufferClass, LeadingCount, Program

if TYPE_CHECKING:
    # Only named in signatures; capacities are checked in processes that have no use for numpy.
    import numpy as np
    from numpy.typing import NDArray

FRAMES: Final = 2
# What still runs when something has failed has so long to end: its memory then stays with the
# process, which hasn't much to do any more.
FAILED_DRAIN_NS: Final = 5_000_000_000


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """How a device uses the machine. `threads` None takes every core that the process may use;
    `instruction_set` None the widest that the machine runs. Of several GPUs `ordinal` is one, from
    0; a round of a GPU that runs longer than `round_limit_s` is taken for one that never ends."""

    threads: int | None = None
    instruction_set: str | None = None
    ordinal: int = 0
    round_limit_s: float = 60.0

    def of_rank(self, rank: int, ranks: int) -> DeviceOptions:
        """Those of one of several ranks: the GPU of its number from `ordinal` on, and its part of
        the threads."""
        share, more = divmod(self.thread_count, ranks)
        threads = max(share + (rank < more), 1)
        return replace(self, threads=threads, ordinal=self.ordinal + rank)

    @property
    def thread_count(self) -> int:
        """The threads that result."""
        return self.threads or len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """What a device can still take, in bytes; `holds_weights` says whether weights take some of it,
    `cache_share` which share of what everything else leaves the cache takes where nobody asks for a
    size (None: what `capacities` says). Memory `on_host` is one for all devices that have it."""

    nbytes: int
    holds_weights: bool = False
    cache_share: float | None = None
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """A buffer with its counts resolved: `shape` includes the leading count, `nbytes` is of the
    whole (of one frame's copy for INPUT and COMPLETION)."""

    buffer: Buffer
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """Every buffer of a manifest with its size, in the manifest's order.

    `counts` holds the chosen leading counts. WORKSPACE buffers lie at their offsets in one arena
    of `workspace_nbytes`; their lifetimes may overlap only in the way that the launches allow.
    """

    buffers: tuple[PlannedBuffer, ...]
    counts: Mapping[LeadingCount, int]
    workspace_nbytes: int

    def nbytes_by_class(self) -> dict[BufferClass, int]:
        """Bytes that each class takes: both frames' copies, the arena for WORKSPACE."""
        totals: dict[BufferClass, int] = {}
        for planned in self.buffers:
            kind = planned.buffer.buffer_class
            copies = FRAMES if kind.framed else 1
            totals[kind] = totals.get(kind, 0) + copies * planned.nbytes
        if BufferClass.WORKSPACE in totals:
            totals[BufferClass.WORKSPACE] = self.workspace_nbytes
        return totals

    def nbytes_by_name(self, scratch_nbytes: int) -> dict[str, int]:
        """The same by the classes' names, and `scratch` where there is some."""
        memory = {kind.name.lower(): nbytes for kind, nbytes in self.nbytes_by_class().items()}
        return {**memory, "scratch": scratch_nbytes} if scratch_nbytes else memory


class Device(Protocol):
    """Memory and execution of one target.

    Order of calls: `available_memory`, `allocate`, `load`, then any number of `submit`s, then
    `close`. Buffers are indices into the plan; frames are 0 and 1 and matter for INPUT and
    COMPLETION buffers only.
    """

    @property
    def name(self) -> str:
        """The target whose manifests it runs: "cpu", "reference"."""

    @property
    def kernel_path(self) -> str:
        """Target and instruction set, as docs/vocabulary.md spells it: "cpu/avx2"."""

    def available_memory(self) -> AvailableMemory:
        """What there is before `allocate`."""

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Backs every buffer, zeroed. `weights` holds the content of each weight resource, which
        stays valid and unchanged until `close` and may be used in place. Called once."""

    def view(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """The host's view (bytes, writable, flat) of a frame's INPUT or COMPLETION buffer."""

    def load(self, programs: Sequence[Program]) -> None:
        """Takes the programs that `submit` will name by their index here. Raises ContractError
        naming the program, launch and operand that the device can't run. Called once."""

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Queues a program on a frame and returns at once. Sequences ascend by one from 1."""

    def completed(self) -> int:
        """The last sequence that has run; 0 before the first. Raises ExecutionError if one
        failed."""

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits until `sequence` has run; False on time-out. Raises ExecutionError as above."""

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) on time.monotonic_ns's clock of one of the last 256 sequences."""

    def scratch_nbytes(self) -> int:
        """Bytes beside the plan's that running the loaded programs takes."""

    def load_ns(self) -> Mapping[str, int]:
        """How long parts of loading took, by name, as far as the device tells; some ran beside
        others."""

    def launches(self) -> int:
        """Launches begun so far: it moves while a long program runs, where the device can say."""

    def read_buffer(self, buffer: int, frame: int) -> NDArray[Any]:
        """A copy of a buffer's values in its resolved shape, for tests and the oracle: floating,
        rows of blocks (ACT_*) as float32 whatever their storage, integer buffers as they are.
        Only while no submission is in flight. Raises ExecutionError for a packed weight."""

    def row_nbytes(self, buffer: int) -> int:
        """Bytes of one row of a CACHE or STATE buffer, as this device keeps it: a row is what the
        leading count counts."""

    def read_rows(self, buffer: int, first: int, into: NDArray[np.uint8]) -> None:
        """Copies as many whole rows of a buffer as `into` has room for, from row `first` on. Rows
        that a submission in flight writes must not be among them."""

    def write_rows(self, buffer: int, first: int, content: NDArray[np.uint8]) -> None:
        """Replaces as many whole rows as `content` holds, from row `first` on. Rows that a
        submission in flight uses must not be among them."""

    def close(self) -> None:
        """Finishes what is queued and frees the memory. Idempotent."""


@runtime_checkable
class DrainedDevice(Protocol):
    """A device whose queue may never end: one that computes by itself, beside the host."""

    def drain_by(self, deadline_ns: int) -> None:
        """What is queued is waited for until then at most (time.monotonic_ns), whatever the
        device would do by itself; `close` waits."""
