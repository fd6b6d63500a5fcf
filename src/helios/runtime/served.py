"""What serves the rounds of a loaded model, whether it is one rank or several in step.

The scheduler's side (worker, oracle, second tier) sees this; `ModelRuntime` is one rank,
`RankGroup` several. Types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from helios.runtime.geometry import Geometry
from helios.runtime.rounds import Completion, Round

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from helios.runtime.cache_content import CacheContent
    from helios.runtime.rank_content import RankContents


class ServedRuntime(Protocol):
    """Takes rounds and gives their answers; from one thread."""

    # Known since load: bytes by buffer class, and how long parts of loading took, of all ranks
    # together.
    geometry: Geometry
    memory: dict[str, int]
    load_ns: dict[str, int]
    tuning_ns: int

    @property
    def cache_content(self) -> CacheContent | RankContents:
        """The bytes of pages and snapshots."""

    def can_submit(self) -> bool:
        """Whether the next round's frame is free."""

    def submit(self, work: Round) -> int:
        """Packs and queues a round; its sequence."""

    def pack_ahead(self, work: Round) -> None:
        """Packs the round that is thought to be submitted next, if a frame is free."""

    def completed(self, sequence: int) -> bool:
        """Whether a round has run."""

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits for a round; False on time-out."""

    def read(self, sequence: int) -> Completion:
        """A completed round's answer; frees its frame."""

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) of one of the last 256 rounds."""

    def launches(self) -> int:
        """Launches begun so far."""

    def read_buffer(self, name: str) -> NDArray[Any]:
        """A copy of a buffer's values as the last round left them."""

    def close(self) -> None:
        """Drains, then lets go of memory and weights."""
