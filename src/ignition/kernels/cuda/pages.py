"""Kernels that copy inside persistent storage: pages to and from saved rows, rows of one buffer.

Rows are copied as words of whatever type divides them. Where several live lanes name the same
place, the last one's content stays, as if they were copied one after the other.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _places(
    lane, live, slot, endpoint, row, page_table, page_tokens, table_pages, slots, pages, saved_rows
):
    """Page and saved row of lanes, and whether there is anything to copy."""
    mask = lane < live
    end = tl.load(endpoint + lane, mask=mask, other=0)
    at = tl.load(slot + lane, mask=mask, other=-1)
    saved = tl.load(row + lane, mask=mask, other=-1)
    column = end // page_tokens
    mask &= (end > 0) & (end % page_tokens != 0) & (column < table_pages)
    mask &= (at >= 0) & (at < slots) & (saved >= 0) & (saved < saved_rows)
    page = tl.load(page_table + at.to(tl.int64) * table_pages + column, mask=mask, other=-1)
    return page, saved, mask & (page >= 0) & (page < pages)


@triton.jit
def copy_pages(
    rows, slot, endpoint, row, page_table, source, destination, capacity, page_tokens,
    table_pages, words, slots, pages, saved_rows, SAVE: tl.constexpr, LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (⌈words / BLOCK⌉, capacity): a part of a lane's page, to its row (`SAVE`) or from it."""
    first = tl.program_id(0) * BLOCK
    lane = tl.program_id(1)
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    if lane < live:
        page, saved, copies = _places(
            lane, live, slot, endpoint, row, page_table, page_tokens, table_pages, slots, pages,
            saved_rows,
        )  # fmt: skip
        mine = saved if SAVE else page
        others = tl.arange(0, LANES)
        for begin in range(lane + 1, live, LANES):
            their_page, their_row, they_copy = _places(
                begin + others, live, slot, endpoint, row, page_table, page_tokens, table_pages,
                slots, pages, saved_rows,
            )  # fmt: skip
            theirs = their_row if SAVE else their_page
            copies &= tl.max((they_copy & (theirs == mine)).to(tl.int32), axis=0) == 0
        if copies:
            word = first + tl.arange(0, BLOCK)
            in_page = page.to(tl.int64) * words + word
            in_row = saved.to(tl.int64) * words + word
            content = tl.load(source + (in_page if SAVE else in_row), mask=word < words)
            tl.store(destination + (in_row if SAVE else in_page), content, mask=word < words)


@triton.jit
def copy_rows(rows, source, destination, buffer, capacity, words, buffer_rows, BLOCK: tl.constexpr):
    """Grid ⌈words / BLOCK⌉: a part of all rows. A row may be what an earlier copy wrote, so the
    copies of a part are made one after the other; parts have nothing to do with each other."""
    word = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    for copy in range(live):
        origin = tl.load(source + copy)
        target = tl.load(destination + copy)
        known = (origin >= 0) & (origin < buffer_rows)
        held = (target >= 0) & (target < buffer_rows)
        content = tl.load(
            buffer + origin.to(tl.int64) * words + word, mask=(word < words) & known & held, other=0
        )
        tl.store(buffer + target.to(tl.int64) * words + word, content, mask=(word < words) & held)
        tl.debug_barrier()  # the next copy reads what this one wrote
