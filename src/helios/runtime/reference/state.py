"""Reference kernels on request state: staging scatters, admission, pending tokens, commit.

The state row and the completion lane are declared once here as numpy records; `sampling.py` reads
sampling parameters through the same record.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS, EOS_CAPACITY, REQUEST_STATE_NBYTES
from helios.runtime.reference.arrays import F32, I32, U8, U32, Records, gather, live_rows
from helios.runtime.rounds import DeviceFinish, LaneError

REQUEST_STATE: Final = np.dtype(
    {
        "names": [
            "pending_token", "consumed", "emitted", "output_limit", "generation", "finished",
            "seed_lo", "seed_hi", "temperature", "top_p", "min_p", "top_k", "repetition_penalty",
            "presence_penalty", "frequency_penalty", "min_tokens", "eos_ids",
        ],
        "formats": [
            *("<i4",) * 6, "<u4", "<u4", *("<f4",) * 3, "<i4", *("<f4",) * 3, "<i4",
            ("<i4", EOS_CAPACITY),
        ],
        "offsets": [*range(0, 68, 4)],
        "itemsize": REQUEST_STATE_NBYTES,
    }
)  # fmt: skip
_LANE_FIELDS: Final = (
    "slot", "generation", "emitted", "consumed", "finish", "draft_cursor", "model_reserved",
    "offered", "accepted", "error",
)  # fmt: skip
COMPLETION_LANE: Final = np.dtype(
    {
        "names": list(_LANE_FIELDS),
        "formats": ["<i4"] * len(_LANE_FIELDS),
        "offsets": [4 * column for column in range(len(_LANE_FIELDS))],
        "itemsize": 4 * COMPLETION_LANE_COLUMNS,
    }
)


def state_rows(state: U8) -> Records:
    """The state rows of all slots, as records over the same memory."""
    return state.view(REQUEST_STATE)


def scatter_i32(rows: I32, index: I32, value: I32, target: I32, *, capacity: int) -> None:
    """`target[index[i]] = value[i]`, in order, for the live rows."""
    for i in range(live_rows(rows, capacity)):
        if 0 <= index[i] < len(target):
            target[index[i]] = value[i]


def initialize_requests(
    rows: I32, slot: I32, generation: I32, consumed: I32, emitted: I32, output_limit: I32,
    seed: U32, temperature: F32, top_k: I32, top_p: F32, min_p: F32, eos_ids: I32, state: U8,
    *, capacity: int,
) -> None:  # fmt: skip
    """Writes a fresh state row for each live row's slot."""
    slots = state_rows(state)
    for row in range(live_rows(rows, capacity)):
        if not 0 <= slot[row] < len(slots):
            continue
        fresh = np.zeros((), REQUEST_STATE)
        fresh["consumed"] = consumed[row]
        fresh["emitted"] = emitted[row]
        fresh["output_limit"] = output_limit[row]
        fresh["generation"] = generation[row]
        fresh["seed_lo"], fresh["seed_hi"] = seed[2 * row : 2 * row + 2]
        fresh["temperature"] = temperature[row]
        fresh["top_k"] = top_k[row]
        fresh["top_p"] = top_p[row]
        fresh["min_p"] = min_p[row]
        fresh["eos_ids"] = eos_ids[EOS_CAPACITY * row : EOS_CAPACITY * (row + 1)]
        slots[slot[row]] = fresh


def load_pending(
    rows: I32, slot: I32, generation: I32, state: U8, tokens: I32, positions: I32, *, capacity: int
) -> None:
    """Each lane's pending token and its position; token 0 at position −1 where the lane is
    finished or its generation is not the slot's."""
    live = live_rows(rows, capacity)
    tokens[:live], positions[:live] = _pending(state, slot[:live], generation[:live])


def _pending(state: U8, slot: I32, generation: I32) -> tuple[I32, I32]:
    """What each lane feeds next, and where it stands."""
    lanes = gather(state_rows(state), slot)
    runs = (lanes["generation"] == generation) & (lanes["finished"] == 0)
    return np.where(runs, lanes["pending_token"], 0), np.where(runs, lanes["consumed"], -1)


def set_pending(
    rows: I32, slot: I32, generation: I32, token: I32, state: U8, *, capacity: int
) -> None:
    """Sets running lanes' pending tokens; those of another generation keep theirs."""
    slots = state_rows(state)
    for lane in range(live_rows(rows, capacity)):
        if not 0 <= slot[lane] < len(slots):
            continue
        row = slots[slot[lane]]
        if row["generation"] == generation[lane] and row["finished"] == DeviceFinish.RUNNING:
            row["pending_token"] = token[lane]


def merge_pending(
    rows: I32, decode_lanes: I32, slot: I32, generation: I32, state: U8, tokens: I32,
    positions: I32, out_tokens: I32, out_positions: I32,
    *, capacity: int, lanes: int,
) -> None:  # fmt: skip
    """Packed rows: those of the decoding lanes from device state, the rest from the host."""
    live = live_rows(rows, capacity)
    decoding = max(0, min(int(decode_lanes[0]), lanes, live))
    out_tokens[:live], out_positions[:live] = tokens[:live], positions[:live]
    out_tokens[:decoding], out_positions[:decoding] = _pending(
        state, slot[:decoding], generation[:decoding]
    )


def commit(
    rows: I32, slot: I32, generation: I32, query_length: I32 | None, sampled: I32 | None,
    tokens: I32, logprobs: F32, state: U8, lanes: I32, out_tokens: I32, out_logprobs: F32,
    *, capacity: int,
) -> None:  # fmt: skip
    """Advances each lane by what the round consumed and sampled, and writes its completion row."""
    slots = state_rows(state)
    records = lanes[: capacity * COMPLETION_LANE_COLUMNS].view(COMPLETION_LANE)
    for lane in range(live_rows(rows, capacity)):
        row = gather(slots, slot[lane : lane + 1])[0]
        record = np.zeros((), COMPLETION_LANE)
        record["slot"], record["generation"] = slot[lane], generation[lane]
        record["draft_cursor"] = record["model_reserved"] = -1
        out_tokens[lane], out_logprobs[lane] = -1, 0.0
        if row["generation"] != generation[lane] or not 0 <= slot[lane] < len(slots):
            record["error"] = LaneError.STALE_GENERATION
        elif row["finished"] != DeviceFinish.RUNNING:
            record["error"] = LaneError.ALREADY_FINISHED
        else:
            row["consumed"] += 1 if query_length is None else query_length[lane]
            if sampled is None or sampled[lane]:
                row["pending_token"] = tokens[lane]
                row["emitted"] += 1
                # An unused entry is −1, which ends nothing.
                if tokens[lane] >= 0 and tokens[lane] in row["eos_ids"]:
                    row["finished"] = DeviceFinish.EOS
                elif row["emitted"] >= row["output_limit"]:
                    row["finished"] = DeviceFinish.LIMIT
                out_tokens[lane], out_logprobs[lane] = tokens[lane], logprobs[lane]
                record["emitted"], record["finish"] = 1, row["finished"]
            slots[slot[lane]] = row
        record["consumed"] = row["consumed"]
        records[lane] = record
