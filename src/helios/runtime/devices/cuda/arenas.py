"""Device memory: an arena for each buffer class, laid out from the plan and taken at once.

Sizes are known before anything is taken; `sizes` says them. Weights have an arena for all
resources, in which a resource lies as it does in the core; INPUT and COMPLETION buffers have one
for their device copies, which both frames share, because one stream runs their rounds in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from helios.errors import ContractError, ExecutionError
from helios.runtime.device import MemoryPlan
from helios.runtime.devices.cuda.driver import OUT_OF_MEMORY, DriverError
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.manifest import BufferClass

# Buffers begin at multiples of it: of what copies, tensor maps and vector loads ask for.
ALIGNMENT_NBYTES: Final = 256
TRANSPORT: Final = "transport"

_REMEDIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cache": "Ask for less with --cache-memory, or for fewer requests with --max-active",
        "state": "Ask for fewer requests with --max-active, or fewer --snapshots",
        "weight": "Choose a GPU with more free memory (--device), or a core with smaller weights",
        "workspace": "Ask for less with --cache-memory, or prepare shorter prompt programs",
        TRANSPORT: "Ask for fewer requests with --max-active",
    }
)
_OTHER_REMEDY: Final = "Ask for less with --cache-memory, or free the GPU's memory"


def aligned(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES


@dataclass
class Layout:
    """Where buffers lie in their arenas: `places` holds arena and offset by buffer, `resources` the
    offset of each weight resource in the arena `weight`, `nbytes` each arena's size."""

    places: list[tuple[str, int]] = field(default_factory=list)
    resources: dict[str, int] = field(default_factory=dict)
    nbytes: dict[str, int] = field(default_factory=dict)

    @property
    def total_nbytes(self) -> int:
        """All arenas together."""
        return sum(self.nbytes.values())


def lay_out(plan: MemoryPlan, resource_nbytes: Mapping[str, int]) -> Layout:
    """Every buffer's place. Raises ContractError for a class that no GPU backs."""
    layout = Layout()
    for resource, nbytes in resource_nbytes.items():
        layout.resources[resource] = layout.nbytes.get("weight", 0)
        layout.nbytes["weight"] = layout.resources[resource] + aligned(nbytes)
    if plan.workspace_nbytes:
        layout.nbytes["workspace"] = aligned(plan.workspace_nbytes)
    for planned in plan.buffers:
        buffer = planned.buffer
        kind = buffer.buffer_class
        if kind is BufferClass.HOST_TABLE:
            raise ContractError("no GPU backs host tables", where=f"buffer {buffer.name}")
        arena = TRANSPORT if kind.framed else kind.name.lower()
        if kind is BufferClass.WEIGHT:
            layout.places.append((arena, layout.resources[buffer.resource] + buffer.offset))
        elif kind is BufferClass.WORKSPACE:
            layout.places.append((arena, buffer.offset))
        else:
            at = layout.nbytes.get(arena, 0)
            layout.places.append((arena, at))
            layout.nbytes[arena] = at + aligned(planned.nbytes)
    return layout


class Arenas:
    """The memory of a layout, zeroed but for the weights: by the stream of copies, for whoever
    comes after `finish_copies`. `addresses` has each buffer's (the device copy's for INPUT and
    COMPLETION buffers)."""

    def __init__(self, gpu: Gpu, layout: Layout) -> None:
        self._gpu = gpu
        self._begins: dict[str, int] = {}
        try:
            for name, nbytes in layout.nbytes.items():
                self._begins[name] = self.take(name, nbytes)
                if name != "weight":
                    gpu.call(
                        f"clearing {name} memory",
                        gpu.driver.cuMemsetD8Async,
                        self._begins[name],
                        0,
                        nbytes,
                        gpu.copies,
                    )
        except BaseException:
            self.close()
            raise
        self.addresses = [self._begins[arena] + offset for arena, offset in layout.places]
        self.resource_addresses = {
            name: self._begins["weight"] + offset for name, offset in layout.resources.items()
        }

    def take(self, name: str, nbytes: int) -> int:
        """Address of so much memory, which ends with the arenas. Raises ExecutionError naming what
        it was for and what would make it fit."""
        gpu = self._gpu
        try:
            address = int(gpu.call(f"taking {name} memory", gpu.driver.cuMemAlloc, max(nbytes, 1)))
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            raise ExecutionError(
                f"its {nbytes} bytes aren't free: {gpu.free_nbytes()} are",
                where=f"GPU memory for {name}",
                remedy=_REMEDIES.get(name, _OTHER_REMEDY),
            ) from error
        self._begins[name] = address
        return address

    def close(self) -> None:
        """Gives all of it back; errors of a context that is lost don't matter any more."""
        for begin in self._begins.values():
            self._gpu.driver.cuMemFree(begin)
        self._begins = {}
