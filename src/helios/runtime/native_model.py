"""A core's model, loaded: every rank of one target with its graphs, memory and cache.

`NativeModel.load` is the way from an opened core to something that runs; the worker, the engine
and `helios verify` use it. What one rank does is `ModelRuntime`'s, what several do in step
`RankGroup`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from helios.core import OpenedCore
from helios.errors import ContractError
from helios.runtime.device import Device
from helios.runtime.geometry import Geometry
from helios.runtime.model_runtime import Capacities, DeviceOptions, ModelRuntime
from helios.runtime.ranks import RankPeers
from helios.runtime.targets import deployed_ranks

if TYPE_CHECKING:
    from helios.runtime.rank_group import RankGroup

__all__ = ["Capacities", "DeviceOptions", "NativeModel", "RankPeers"]


class NativeModel:
    """Use `load`, as a context manager or with `close`. The owner of all ranks' memory."""

    def __init__(self, runtime: ModelRuntime | RankGroup) -> None:
        self._runtime = runtime

    @classmethod
    def load(
        cls,
        core: OpenedCore,
        *,
        target: str = "cpu",
        options: DeviceOptions | None = None,
        capacities: Capacities | None = None,
        peers: RankPeers = RankPeers.THREADS,
        verify_weights: bool = True,
        devices: Sequence[Device] = (),
    ) -> NativeModel:
        """Selects graph capacities, loads each rank's resources and backs the cache; `devices`, one
        a rank, replaces the target's own. Raises CoreError, ContractError or ExecutionError;
        nothing is then left behind."""
        ranks = deployed_ranks(core, target)
        if len(ranks) == 1:
            runtime = ModelRuntime.load(
                core,
                target=target,
                options=options,
                capacities=capacities,
                verify_weights=verify_weights,
                device=devices[0] if devices else None,
            )
            return cls(runtime)
        if peers is RankPeers.PROCESSES:
            raise ContractError(
                f"target {target!r} has {len(ranks)} ranks, which would run as {peers.value} on"
                " other hosts; this Helios runs ranks of one host alone",
                where=str(core.folder),
                remedy=f"Run all of them here, as {RankPeers.THREADS.value}",
            )
        # Imported on use: most cores have one rank.
        from helios.runtime.rank_loading import load_ranks

        return cls(
            load_ranks(
                core,
                target,
                ranks,
                options=options or DeviceOptions(),
                capacities=capacities or Capacities(),
                verify_weights=verify_weights,
                devices=devices,
            )
        )

    @property
    def manifests(self) -> tuple[Geometry, ...]:
        """The execution geometry that resulted, rank by rank."""
        return tuple(rank.geometry for rank in self.ranks)

    @property
    def ranks(self) -> tuple[ModelRuntime, ...]:
        """Every rank by itself. Rounds are `runtime`'s to take."""
        return (self._runtime,) if isinstance(self._runtime, ModelRuntime) else self._runtime.ranks

    @property
    def runtime(self) -> ModelRuntime | RankGroup:
        """What takes rounds: the only rank, or all of them in step."""
        return self._runtime

    def close(self) -> None:
        """Drains every rank, then lets go of its memory and weights. Idempotent."""
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
