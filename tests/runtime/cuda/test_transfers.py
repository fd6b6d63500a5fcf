"""Tables of what rounds move, and which inputs stay where the host writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helios.contract import decode
from helios.runtime.capacities import Capacities
from helios.runtime.device import MemoryPlan
from helios.runtime.devices.cuda import transfers
from helios.runtime.devices.cuda.arenas import lay_out
from helios.runtime.devices.cuda.clock import GpuClock
from helios.runtime.devices.cuda.transfers import Moved, moved_buffers, record_rows, stage_rows
from helios.runtime.manifest import BufferClass
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.selection import select
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import sample_manifest

HOST, GPU = 1 << 40, 1 << 44
MANIFEST = decode_manifest(sample_manifest())
PLAN = select(decode(sample_contract()), MANIFEST, Capacities(), 1 << 30).plan
PROGRAMS = {program.name: program for program in MANIFEST.programs}
INDEX = MANIFEST.buffer_index


class FakeFrames:
    """Frames whose buffers lie as in the GPU's arena, the second frame behind the first."""

    def __init__(self, offsets: dict[int, int]) -> None:
        self._offsets = offsets

    def address(self, buffer: int, frame: int) -> int:
        return HOST + (frame << 20) + self._offsets[buffer]


def tables(
    moved: list[Moved], offsets: dict[int, int], frame: int = 0
) -> list[tuple[int, int, int]]:
    copies = {buffer: GPU + at for buffer, at in offsets.items()}
    frames: Any = FakeFrames(offsets)
    rows = stage_rows(moved, frames, copies, frame)
    back = record_rows(moved, frames, copies, frame)
    assert np.array_equal(rows[:, [1, 0, 2]], back)
    return [tuple(row) for row in rows.tolist()]


def test_neighbours_travel_together_and_long_ranges_in_parts() -> None:
    moved = [Moved(0, 4), Moved(1, 100), Moved(2, 20_000), Moved(3, 16)]
    offsets = {0: 0, 1: 256, 2: 4096, 3: 40_960}
    assert tables(moved, offsets) == [
        (HOST, GPU, 256 + 112),
        (HOST + 4096, GPU + 4096, 8192),
        (HOST + 4096 + 8192, GPU + 4096 + 8192, 8192),
        (HOST + 4096 + 16384, GPU + 4096 + 16384, 20_000 - 16384),
        (HOST + 40_960, GPU + 40_960, 16),
    ]
    assert tables(moved, offsets, frame=1)[0] == (HOST + (1 << 20), GPU, 256 + 112)


def test_a_table_has_a_row_at_least() -> None:
    assert tables([], {}) == [(0, 0, 0)]


def test_programs_move_what_their_launches_name_as_far_as_their_rows_go() -> None:
    def moved(plan: MemoryPlan) -> dict[str, int]:
        by_class = moved_buffers(PROGRAMS["decode.b2"], plan)
        return {
            plan.buffers[one.buffer].buffer.name: one.nbytes
            for one in (*by_class[BufferClass.INPUT], *by_class[BufferClass.COMPLETION])
        }

    found = moved(PLAN)
    slots = 4
    assert found["in.slot"] == 4 * slots
    assert found["in.page_table.index"] == 4 * 24  # entries, not rows
    assert found["completion.lanes"] == 2 * 48
    assert "in.tokens" not in found
    longer = moved_buffers(PROGRAMS["prefill.p8"], PLAN)[BufferClass.INPUT]
    assert Moved(INDEX["in.tokens"], 4 * 8) in longer


def test_large_inputs_of_one_launch_are_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not transfers.read_in_place(MANIFEST.programs, PLAN)
    monkeypatch.setattr(transfers, "IN_PLACE_NBYTES", 8)
    found = {PLAN.buffers[i].buffer.name for i in transfers.read_in_place(MANIFEST.programs, PLAN)}
    assert {"in.tokens", "in.page_table.index", "in.eos_ids"} <= found
    # Several launches read the slots; a count is small.
    assert not {"in.slot", "in.page_table.count", "completion.lanes"} & found


def test_sizes_are_those_of_the_plan() -> None:
    layout = lay_out(PLAN, {"weights": 2048})
    for kind, nbytes in PLAN.nbytes_by_class().items():
        if not kind.framed:
            arena = layout.nbytes[kind.name.lower()]
            assert nbytes <= arena < nbytes + 256 * len(PLAN.buffers)
    ends: dict[str, int] = {}
    for planned, (arena, offset) in zip(PLAN.buffers, layout.places, strict=True):
        if arena not in ("weight", "workspace"):
            assert offset % 256 == 0
            assert offset >= ends.get(arena, 0)
            ends[arena] = offset + planned.nbytes
    host = replace(PLAN.buffers[0].buffer, buffer_class=BufferClass.HOST_TABLE)
    changed = (replace(PLAN.buffers[0], buffer=host), *PLAN.buffers[1:])
    with pytest.raises(Exception, match="no GPU backs host tables"):
        lay_out(replace(PLAN, buffers=changed), {"weights": 2048})


def test_the_clock_is_narrowed_down_and_follows_a_drift() -> None:
    clock = GpuClock()
    truth = 5_000  # host minus GPU
    for submitted, start, end, seen in ((100, 140, 150, 250), (300, 310, 330, 342)):
        clock.calibrate(submitted, start - truth, end - truth, seen)
    assert clock.times(1000, 1100 - truth, 1200 - truth, 1300) == pytest.approx((1100, 1200), abs=2)
    # The GPU's clock runs ahead: rounds would end after they have been seen to.
    assert clock.times(2000, 2100 - truth + 300, 2200 - truth + 300, 2250)[1] <= 2250
    # And behind: they would begin before they were submitted.
    assert clock.times(3000, 3010 - truth - 300, 3200 - truth - 300, 3900)[0] >= 3000
