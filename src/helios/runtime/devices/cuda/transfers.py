"""Which bytes of a frame a program's graph moves: the tables of `stage` and `record`.

A program's table lists what it reads of the INPUT buffers, or what it writes of the COMPLETION
buffers, in ranges that a CTA copies; equal tables are one. Large inputs that one launch reads
aren't copied: it reads them in the frame's pinned memory, and most have room for far more than a
round brings (deltas, grammar masks, histograms).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.runtime.device import MemoryPlan
from helios.runtime.devices.cuda.pinned import Frames
from helios.runtime.manifest import BufferClass, LeadingCount, Program

# Bytes of one range at most, and what its addresses and length are multiples of.
RANGE_NBYTES: Final = 8192
_UNIT_NBYTES: Final = 16
# Inputs of more bytes are read in place, if at all possible.
IN_PLACE_NBYTES: Final = 4 << 10
# Ranges this close in both memories travel as one: what lies between them does no harm.
_GAP_NBYTES: Final = 512
# The kernel whose operands are entries of deltas, not rows.
_TAKES_ENTRIES: Final = "scatter_i32"

Rows = NDArray[np.int64]


def read_in_place(programs: Iterable[Program], plan: MemoryPlan) -> frozenset[int]:
    """INPUT buffers that kernels read where the host writes them: large ones that no program reads
    in more than one launch."""
    large = {
        index
        for index, planned in enumerate(plan.buffers)
        if planned.buffer.buffer_class is BufferClass.INPUT and planned.nbytes > IN_PLACE_NBYTES
    }
    for program in programs:
        read: set[int] = set()
        for launch in program.launches:
            named = {operand.buffer for operand in launch.operands if operand is not None}
            large -= named & read
            read |= named
    return frozenset(large)


@dataclass(frozen=True, slots=True)
class Moved:
    """A buffer, and how many of its first bytes a program's rounds move."""

    buffer: int
    nbytes: int


def moved_buffers(program: Program, plan: MemoryPlan) -> dict[BufferClass, list[Moved]]:
    """INPUT and COMPLETION buffers that the launches name, ascending. Their rows are those of
    lanes, packed tokens or slots, so programs for few don't move what others have room for."""
    rows = max(
        program.batch_capacity,
        program.packed_token_capacity,
        plan.counts.get(LeadingCount.REQUEST_SLOTS, 0),
    )
    records = max(program.batch_capacity, program.packed_token_capacity)
    whole: set[int] = set()
    used: set[int] = set()
    for launch in program.launches:
        named = {operand.buffer for operand in launch.operands if operand is not None}
        used |= named
        if launch.kernel.name == _TAKES_ENTRIES:
            whole |= named
    moved: dict[BufferClass, list[Moved]] = {kind: [] for kind in BufferClass if kind.framed}
    for buffer in sorted(used):
        planned = plan.buffers[buffer]
        kind = planned.buffer.buffer_class
        if not kind.framed:
            continue
        nbytes = planned.nbytes
        if buffer not in whole:
            most = records if kind is BufferClass.COMPLETION else rows
            nbytes = min(nbytes, most * (nbytes // planned.shape[0]))
        moved[kind].append(Moved(buffer, nbytes))
    return moved


def stage_rows(inputs: Iterable[Moved], frames: Frames, copies: Sequence[int], frame: int) -> Rows:
    """The table that brings a frame's inputs to their device copies, at `copies` by buffer."""
    return _rows(
        (frames.address(one.buffer, frame), copies[one.buffer], one.nbytes) for one in inputs
    )


def record_rows(record: Iterable[Moved], frames: Frames, copies: Sequence[int], frame: int) -> Rows:
    """The table that brings a record to a frame."""
    return _rows(
        (copies[one.buffer], frames.address(one.buffer, frame), one.nbytes) for one in record
    )


def _rows(ranges: Iterable[tuple[int, int, int]]) -> Rows:
    """(source, destination, bytes) as rows of a table, neighbours joined and long ones cut; one row
    of nothing where there is nothing to copy, for a grid has a CTA at least."""
    joined: list[tuple[int, int, int]] = []
    for source, destination, nbytes in sorted(ranges):
        nbytes = -(-nbytes // _UNIT_NBYTES) * _UNIT_NBYTES
        if joined:
            first, at, length = joined[-1]
            gap = source - first - length
            if gap == destination - at - length and 0 <= gap <= _GAP_NBYTES:
                joined[-1] = (first, at, length + gap + nbytes)
                continue
        joined.append((source, destination, nbytes))
    rows = [
        (source + begin, destination + begin, min(RANGE_NBYTES, nbytes - begin))
        for source, destination, nbytes in joined
        for begin in range(0, nbytes, RANGE_NBYTES)
    ]
    return np.array(rows or [(0, 0, 0)], np.int64)
