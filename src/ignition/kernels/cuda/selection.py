"""Kernels that choose rows: parts of a round's rows, the last rows of the lanes that sample."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def slice_rows(rows, out, capacity, start, limit):
    """How many live rows there are from `start` on, at most `limit`."""
    gdc_wait()
    gdc_launch_dependents()
    live = tl.maximum(tl.minimum(tl.load(rows), capacity), 0)
    tl.store(out, tl.maximum(tl.minimum(live - start, limit), 0))


@triton.jit
def _chosen(lane, live, query_length, sample, packed_capacity, LANES: tl.constexpr):
    """The last packed row of a lane that samples, -1 of another one; how many before it do, and
    how many there are. Lanes past the live ones aren't counted."""
    offsets = tl.arange(0, LANES)
    packed = 0  # rows before these lanes
    selected = 0  # lanes before these that sample
    last = tl.full((), -1, dtype=tl.int32)
    place = tl.full((), 0, dtype=tl.int32)
    for begin in range(0, live, LANES):
        other = begin + offsets
        length = tl.load(query_length + other, mask=other < live, other=0)
        wanted = tl.load(sample + other, mask=other < live, other=0)
        # Whatever is longer ends past the packed rows as well.
        length = tl.minimum(tl.maximum(length, 0), packed_capacity + 1)
        end = packed + tl.cumsum(length, axis=0)
        chosen = (wanted != 0) & (length > 0) & (end <= packed_capacity)
        last = tl.maximum(last, tl.max(tl.where(chosen & (other == lane), end - 1, -1), axis=0))
        place += tl.sum((chosen & (other < lane)).to(tl.int32), axis=0)
        selected += tl.sum(chosen.to(tl.int32), axis=0)
        # Past the packed rows it stays there, however many lanes follow.
        packed = tl.minimum(packed + tl.sum(length, axis=0), packed_capacity + 1)
    return last, place, selected


@triton.jit
def _move(source, target, row, place, width, part, BLOCK: tl.constexpr):
    """A part of a row of `width` words goes to its place."""
    column = part * BLOCK + tl.arange(0, BLOCK)
    content = tl.load(source + row.to(tl.int64) * width + column, mask=column < width)
    tl.store(target + place.to(tl.int64) * width + column, content, mask=column < width)


@triton.jit
def select_last(
    rows, query_length, sample, x, selected_rows, selected_lane, out, capacity, packed_capacity,
    width, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (⌈width / BLOCK⌉, capacity): a lane's last packed row moves to its place among those
    that sample. Each program counts them for itself; the first one writes their number."""
    lane = tl.program_id(1)
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    first = (lane == 0) & (tl.program_id(0) == 0)
    if (lane < live) | first:
        last, place, selected = _chosen(lane, live, query_length, sample, packed_capacity, LANES)
        if first:
            tl.store(selected_rows, selected)
        if last >= 0:
            if tl.program_id(0) == 0:
                tl.store(selected_lane + place, lane)
            _move(x, out, last, place, width, tl.program_id(0), BLOCK)


@triton.jit
def select_attending(
    rows, query_length, sample, x, queries, positions, slot, selected_rows, selected_lane, out,
    out_queries, out_positions, out_slot, capacity, packed_capacity, width, words,
    LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (⌈width / BLOCK⌉ + ⌈words / BLOCK⌉, capacity): as `select_last`, with the row's queries,
    which are `words` of whatever type divides them, its position and its slot."""
    part = tl.program_id(0)
    lane = tl.program_id(1)
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    first = (lane == 0) & (part == 0)
    if (lane < live) | first:
        last, place, selected = _chosen(lane, live, query_length, sample, packed_capacity, LANES)
        if first:
            tl.store(selected_rows, selected)
        if last >= 0:
            if part == 0:
                tl.store(selected_lane + place, lane)
                tl.store(out_positions + place, tl.load(positions + last))
                tl.store(out_slot + place, tl.load(slot + last))
            of_x = tl.cdiv(width, BLOCK)
            if part < of_x:
                _move(x, out, last, place, width, part, BLOCK)
            else:
                _move(queries, out_queries, last, place, words, part - of_x, BLOCK)
