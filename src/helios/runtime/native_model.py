"""A core's model, loaded: every rank of one target with its graphs, memory and cache.

`NativeModel.load` is the way from an opened core to something that runs; the worker, the engine
and `helios verify` use it. What one rank does is `ModelRuntime`'s.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from helios.core import OpenedCore
from helios.errors import ContractError
from helios.runtime.device import Device
from helios.runtime.geometry import Geometry
from helios.runtime.model_runtime import Capacities, DeviceOptions, ModelRuntime
from helios.runtime.ranks import RankPeers
from helios.runtime.targets import deployed_ranks

__all__ = ["Capacities", "DeviceOptions", "NativeModel", "RankPeers"]


class NativeModel:
    """Use `load`, as a context manager or with `close`. The owner of all ranks' memory."""

    def __init__(self, ranks: tuple[ModelRuntime, ...]) -> None:
        self._ranks = ranks

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
        device: Device | None = None,
    ) -> NativeModel:
        """Selects graph capacities, loads each rank's resources and backs the cache; `device`
        replaces the target's own. Raises CoreError, ContractError or ExecutionError; nothing is
        then left behind."""
        ranks = deployed_ranks(core, target)
        if len(ranks) != 1:
            raise ContractError(
                f"target {target!r} has {len(ranks)} ranks, which would run as {peers.value};"
                " this Helios runs one",
                where=str(core.folder),
                remedy="Prepare the model for one rank",
            )
        runtime = ModelRuntime.load(
            core,
            target=target,
            options=options,
            capacities=capacities,
            verify_weights=verify_weights,
            device=device,
        )
        return cls((runtime,))

    @property
    def manifests(self) -> tuple[Geometry, ...]:
        """The execution geometry that resulted, rank by rank."""
        return tuple(runtime.geometry for runtime in self._ranks)

    @property
    def runtime(self) -> ModelRuntime:
        """The rank that takes rounds."""
        return self._ranks[0]

    def close(self) -> None:
        """Drains every rank, then lets go of its memory and weights. Idempotent."""
        for runtime in self._ranks:
            runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
