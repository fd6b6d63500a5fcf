"""When each workspace buffer holds something: the planner's input, derived from launches.

A value lives from the launch that overwrites its buffer to the last launch that reads it before
the next overwrite; between two values the buffer needs no memory. Knows accesses only, no kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from helios.errors import ContractError
from helios.kernels.catalogue import KernelSpec
from helios.schema import execution_pb2 as pb
from ignition.capture.handles import BufferHandle
from ignition.capture.planner import Interval, Tensor


@dataclass(frozen=True)
class OperandUse:
    """A launch's use of a buffer; `effect` is "r", "w" (old content is lost) or "rw"."""

    buffer: BufferHandle
    effect: str


@dataclass(frozen=True)
class RecordedLaunch:
    """A checked launch; `uses` has an entry for each operand of the kernel, None where absent.

    On cuda targets `nodes` do its work, with `scratch` that holds something meanwhile. `joined`:
    the next launch's nodes do it instead.
    """

    kernel: KernelSpec
    uses: tuple[OperandUse | None, ...]
    integers: tuple[int, ...]
    floats: tuple[float, ...]
    nodes: tuple[pb.CudaNode, ...] = ()
    scratch: tuple[BufferHandle, ...] = ()
    joined: bool = False


def workspace_tensors(
    programs: Sequence[Sequence[RecordedLaunch]], retained: Collection[str]
) -> list[Tensor]:
    """One tensor a workspace buffer that is used, with its intervals over all programs. Buffers
    in `retained` keep their last value to the end of the program."""
    sizes: dict[str, int] = {}
    intervals: defaultdict[str, list[Interval]] = defaultdict(list)
    for number, launches in enumerate(programs):
        for name, spans in _spans(launches, sizes).items():
            if name in retained:
                spans[-1][1] = _steps(launches)[-1]
            intervals[name].extend(Interval(number, first, last) for first, last in spans)
    return [Tensor(name, sizes[name], tuple(intervals[name])) for name in intervals]


def _spans(launches: Sequence[RecordedLaunch], sizes: dict[str, int]) -> dict[str, list[list[int]]]:
    """[first, last] of each value that each workspace buffer holds in one program."""
    spans: dict[str, list[list[int]]] = {}
    for at, launch in zip(_steps(launches), launches, strict=True):
        for buffer in launch.scratch:
            sizes[buffer.name] = buffer.nbytes
            spans.setdefault(buffer.name, []).append([at, at])
        for use in launch.uses:
            if use is None or use.buffer.buffer_class != pb.BUFFER_CLASS_WORKSPACE:
                continue
            name = use.buffer.name
            sizes[name] = use.buffer.nbytes
            if use.effect == "w":
                spans.setdefault(name, []).append([at, at])
            elif name in spans:
                spans[name][-1][1] = at
            else:
                raise ContractError(
                    f"launch {at} ({launch.kernel.name}) reads scratch that nothing has written",
                    where=name,
                )
    return spans


def _steps(launches: Sequence[RecordedLaunch]) -> list[int]:
    """When each launch runs: at once with those that it is joined to."""
    steps, step = [], 0
    for launch in launches:
        steps.append(step)
        step += not launch.joined
    return steps
