"""What a model worker is told when it starts. Travels as JSON on the worker's command line."""

from __future__ import annotations

from typing import Literal

import msgspec

from helios.runtime.ranks import RankPeers
from helios.scheduler.options import SchedulerOptions


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the core is and how to serve it; None leaves a choice to the core and the machine.

    `publisher_key` is the publisher's raw Ed25519 key; without it the trust store decides, unless
    `allow_unknown_publisher` is set. `core_key` is the path of a sealed core's key file, never the
    key: these options can be seen in a list of processes. `cache_dir` is where resources that the
    core's folder lacks are kept, `allow_private_mirrors` lets them come from private addresses,
    and a mirror may leave us without an answer for `mirror_timeout_s`.
    The capacities are those of `helios.runtime.Capacities`. `oracle` says whether to replay a case
    of the core's oracle before serving, `verify_weights` whether to check the weights' digests.
    """

    core: str
    accept: str
    publisher_key: bytes | None = None
    allow_unknown_publisher: bool = False
    core_key: str | None = None
    cache_dir: str | None = None
    allow_private_mirrors: bool = False
    mirror_timeout_s: float | None = None
    target: Literal["cpu", "reference"] = "cpu"
    threads: int | None = None
    instruction_set: str | None = None
    request_slots: int | None = None
    cache_nbytes: int | None = None
    cache_share: float | None = None
    speculative_width: int | None = None
    snapshots: int | None = None
    history_drafting: bool = False
    peers: RankPeers = RankPeers.THREADS
    verify_weights: bool = True
    oracle: bool = True
    scheduler: SchedulerOptions = SchedulerOptions()

    @property
    def asks_for_capacities(self) -> bool:
        """Whether any capacity isn't left to the core and the machine."""
        sizes = (
            self.request_slots,
            self.cache_nbytes,
            self.cache_share,
            self.speculative_width,
            self.snapshots,
        )
        return self.history_drafting or any(size is not None for size in sizes)
