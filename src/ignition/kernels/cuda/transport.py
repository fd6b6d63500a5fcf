"""The ends of every program's graph: `stage` brings a round's inputs to the device, `record` its
completion to the host.

Both copy by a table that the runtime makes for each program and frame: i64 [CTAs, 3] of source,
destination and bytes, a row a CTA. Addresses and bytes are multiples of 16, and a row has
`RANGE_NBYTES` at most. `state` is device memory between the two, i64 [2]: the sequence and when its
stage began (`%globaltimer`, nanoseconds). What the runtime and these kernels owe each other is in
docs/execution-manifest.md. Nothing here computes on what it copies.
"""

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.compile import KernelRequest

# Bytes that one CTA copies at most; the runtime cuts longer ranges.
RANGE_NBYTES: Final = 8192
# Of the sequences that the ring of times has a row for.
TIMED_SEQUENCES: Final = 256


@triton.jit
def now():
    """The GPU's clock, in nanoseconds."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def release(word, value):
    """Stores a value that the host may see only after all that this CTA has written and seen."""
    tl.inline_asm_elementwise(
        """{
        .reg .pred first;
        .reg .u32 thread;
        mov.u32 thread, %tid.x;
        setp.eq.u32 first, thread, 0;
        @first fence.acq_rel.sys;
        @first st.release.sys.global.u64 [$1], $2;
        mov.u32 $0, 0;
        }""",
        "=r,l,l",
        [word.to(tl.int64), value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _copy(table, RANGE: tl.constexpr):
    """This CTA's row of the table."""
    row = table + tl.program_id(0) * 3
    source = tl.load(row).to(tl.pointer_type(tl.int64))
    destination = tl.load(row + 1).to(tl.pointer_type(tl.int64))
    at = tl.arange(0, RANGE // 8)
    inside = at < tl.load(row + 2) // 8
    tl.store(destination + at, tl.load(source + at, mask=inside), mask=inside)


@triton.jit
def stage(table, sequence, state, RANGE: tl.constexpr):
    """Grid: rows of the table. `sequence` i64 [1] is in the frame's host memory."""
    began = now()
    gdc_launch_dependents()
    gdc_wait()
    if tl.program_id(0) == 0:
        tl.store(state, tl.load(sequence))
        tl.store(state + 1, began)
    _copy(table, RANGE)


@triton.jit
def record(table, state, arrivals, times, completed, RANGE: tl.constexpr, TIMED: tl.constexpr):
    """Grid: rows of the table. The last CTA to end says when the round ran, in row sequence mod
    TIMED of `times` (i64 [TIMED, 2], host memory), then releases the sequence in `completed` (i64
    [1], host memory). `arrivals` i32 [1] is zero before the launch and after it."""
    gdc_wait()
    _copy(table, RANGE)
    tl.debug_barrier()  # every thread has stored before the arrival is counted
    if tl.atomic_add(arrivals, 1, sem="acq_rel", scope="sys") == tl.num_programs(0) - 1:
        tl.store(arrivals, 0)
        sequence = tl.load(state)
        row = times + sequence % TIMED * 2
        tl.store(row, tl.load(state + 1))
        tl.store(row + 1, now())
        tl.debug_barrier()
        release(completed, sequence)


STAGE: Final = KernelRequest(
    function=stage,
    arguments={"table": "*i64", "sequence": "*i64", "state": "*i64"},
    constants={"RANGE": RANGE_NBYTES},
    num_warps=4,
    num_stages=1,
)
RECORD: Final = KernelRequest(
    function=record,
    arguments={
        "table": "*i64",
        "state": "*i64",
        "arrivals": "*i32",
        "times": "*i64",
        "completed": "*i64",
    },
    constants={"RANGE": RANGE_NBYTES, "TIMED": TIMED_SEQUENCES},
    num_warps=4,
    num_stages=1,
)
