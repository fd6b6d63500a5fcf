"""What a model worker is told when it starts. Travels as JSON on the worker's socket (`order`)."""

from __future__ import annotations

from typing import Final

import msgspec

from helios.errors import HeliosError
from helios.logs import LogOptions
from helios.runtime.ranks import RankPeers
from helios.scheduler.options import SchedulerOptions

# As errors name them: the field, and the option of the `helios` command.
PROMPT_CACHE: Final = "prompt_cache (--prompt-cache)"
PROMPT_CACHE_SIZE: Final = "prompt_cache_nbytes (--prompt-cache-size)"
OFFLOAD_MEMORY: Final = "offload_nbytes (--offload-memory)"


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the core is and how to serve it; None leaves a choice to the core and the machine.

    `publisher_key` is the publisher's raw Ed25519 key; without it the trust store decides, unless
    `allow_unknown_publisher` is set. `core_key` is the path of a sealed core's key file, never the
    key itself. `cache_dir` is where resources that the
    core's folder lacks are kept, `allow_private_mirrors` lets them come from private addresses,
    and a mirror may leave us without an answer for `mirror_timeout_s`.

    `target` is cpu, reference, one of the core's like cuda:sm_90, or `cuda` for its only cuda
    target; None takes cpu where the core has it, else its only one. Of several GPUs `device` is
    one, from 0. The capacities are those of `helios.runtime.Capacities`.

    `prompt_cache` is a folder in which what prompts leave survives restarts, in files of at most
    `prompt_cache_nbytes` in all (None: 16 GiB); `offload_nbytes` of host memory keep what the cache
    has no room for. `oracle` says whether
    to replay a case of the core's oracle before serving, `verify_weights` whether to check the
    weights' digests; `logs` what its process logs and how. Raises HeliosError for sizes and folders
    that contradict each other.
    """

    core: str
    accept: str
    publisher_key: bytes | None = None
    allow_unknown_publisher: bool = False
    core_key: str | None = None
    cache_dir: str | None = None
    allow_private_mirrors: bool = False
    mirror_timeout_s: float | None = None
    target: str | None = None
    device: int = 0
    threads: int | None = None
    instruction_set: str | None = None
    request_slots: int | None = None
    cache_nbytes: int | None = None
    cache_share: float | None = None
    speculative_width: int | None = None
    snapshots: int | None = None
    prompt_cache: str | None = None
    prompt_cache_nbytes: int | None = None
    offload_nbytes: int = 0
    history_drafting: bool = False
    peers: RankPeers = RankPeers.THREADS
    verify_weights: bool = True
    oracle: bool = True
    scheduler: SchedulerOptions = SchedulerOptions()
    logs: LogOptions = LogOptions()

    def __post_init__(self) -> None:
        if self.prompt_cache is None and self.prompt_cache_nbytes is not None:
            raise HeliosError(
                "is the size of nothing",
                where=PROMPT_CACHE_SIZE,
                remedy=f"Name the folder too, with {PROMPT_CACHE}",
            )
        for size, where in (
            (self.prompt_cache_nbytes, PROMPT_CACHE_SIZE),
            (self.offload_nbytes, OFFLOAD_MEMORY),
        ):
            if size is not None and size < 0:
                raise HeliosError(f"{size} is negative", where=where, remedy="Set it to 0 or more")
        if self.asks_for_second_tier and not self.scheduler.prefix_reuse:
            where = PROMPT_CACHE if self.prompt_cache is not None else OFFLOAD_MEMORY
            raise HeliosError(
                "keeps what prefix reuse is switched off for",
                where=where,
                remedy="Leave out this, or prefix_reuse (--no-prefix-reuse)",
            )

    @property
    def asks_for_second_tier(self) -> bool:
        """Whether content is to be kept beyond the device's cache."""
        return self.prompt_cache is not None or self.offload_nbytes > 0

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
