"""What a launch of the catalogue becomes on a GPU: the terms that `lowerings` are written in.

A lowering is given a `CatalogueLaunch`, the kernel's attributes and which operands there are, and
returns the CUDA launches that do its work, one after the other. It sees no buffers and no
addresses: arguments name operands, scratch and counters, which the recorder resolves. Imports no
compiler, so that lowerings can be read and tested without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from helios.schema import execution_pb2 as pb

if TYPE_CHECKING:
    from ignition.kernels.cuda.compile import KernelRequest


@dataclass(frozen=True)
class Architecture:
    """What lowerings may know of the GPU: its compiler's name and its multiprocessors."""

    name: str
    processors: int


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {name: Architecture(name, processors) for name, processors in (("sm_90", 132), ("sm_100", 148))}
)


@dataclass(frozen=True)
class CatalogueLaunch:
    """One launch of the catalogue: attributes by name, the operands that are present, and of
    weight operands nothing more than the attributes say.

    `settled` operands are older than the launch before this one: there is one, it doesn't write
    them, and it waits for what is before it until it lets another begin. Of `selected` rows the
    program itself counts the live ones, which may be far fewer than there is room for.
    """

    kernel: str
    integers: Mapping[str, int]
    floats: Mapping[str, float]
    operands: frozenset[str]
    architecture: Architecture
    settled: frozenset[str] = frozenset()
    selected: bool = False


@dataclass(frozen=True)
class At:
    """The address of an operand; 0 where an optional operand is absent. `launch` counts the
    launches of a fusion."""

    operand: str
    launch: int = 0


@dataclass(frozen=True)
class Scratch:
    """The address of memory that holds nothing before the launch and nothing after it. One `role`
    of one catalogue launch is one buffer."""

    role: str
    dtype: pb.DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Counters:
    """The address of `count` i32 that are zero when a launch begins and are left zero: shared by
    all launches that aren't at work at the same time."""

    count: int


@dataclass(frozen=True)
class TensorMap:
    """A tensor map over an operand as a row-major matrix of `columns`; its rows are those that the
    operand's buffer holds. Box, swizzle and element come from the compiled kernel."""

    operand: str
    columns: int
    launch: int = 0


@dataclass(frozen=True)
class RowsOf:
    """How many whole rows of `row_nbytes` bytes an operand holds, from its first byte to its
    buffer's end, as an i32: known when the buffers are allocated, not before."""

    operand: str
    row_nbytes: int
    launch: int = 0


# An int is passed as the function's parameter says (i32 or i64), a float as f32.
Argument = At | Scratch | Counters | TensorMap | RowsOf | int | float


@dataclass(frozen=True)
class CudaKernel:
    """A launch of a compiled kernel. `arguments` by the names of `request.arguments`, all of them.

    `programmatic`: it may begin while the launch before it ends, because it waits for it
    (`gdc_wait`) before its first read or write of anything but weights and of `settled` arguments:
    what those point at was written before the launch before it, which waits before it lets another
    begin (`CatalogueLaunch.settled`, or a launch before it in the same fusion).
    """

    request: KernelRequest
    grid: tuple[int, int, int]
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    programmatic: bool = True
    settled: frozenset[str] = frozenset()


Lowering = Callable[[CatalogueLaunch], Sequence[CudaKernel]]


@dataclass(frozen=True)
class NeighbouringLaunch:
    """A launch as a fusion sees it. `places` tells which of its operands are the same as another
    launch's: equal where they are. `unread` holds the places that the fused launches write and
    that nothing reads after them, so that they needn't be written."""

    launch: CatalogueLaunch
    places: Mapping[str, tuple[int, int]]
    unread: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Fusion:
    """Kernels that do the work of consecutive launches of `kernels`. `lower` returns None where
    these don't fit together; the kernels' arguments say which launch an operand is of."""

    kernels: tuple[str, ...]
    lower: Callable[[Sequence[NeighbouringLaunch]], Sequence[CudaKernel] | None]
