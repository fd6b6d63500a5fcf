"""Plays a synthetic model's programs over the storage that the runtime planned.

Every round runs as late as it may: when somebody waits for it, or when a test says so. It reads
its frame's staging then, so a frame that was written too early, a page that was given away too
early or a row that was reused too early changes what comes out.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Operation
from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS
from helios.runtime.devices.null import NullDevice
from helios.runtime.manifest import Program
from tests.synthetic.histories import (
    PAGE_TOKENS,
    History,
    fold,
    hidden,
    key_value_record,
    output,
)

_STATE = np.dtype(
    {
        "names": ["pending", "consumed", "emitted", "limit", "generation", "finished", "seed"],
        "formats": ["<i4", "<i4", "<i4", "<i4", "<i4", "<i4", "<u8"],
        "offsets": [0, 4, 8, 12, 16, 20, 24],
        "itemsize": 128,
    }
)
_EOS = np.dtype({"names": ["ids"], "formats": [("<i4", 16)], "offsets": [64], "itemsize": 128})


class SyntheticDevice(NullDevice):
    """The device of one history. `run_next` runs the oldest queued round."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self._queued: deque[tuple[int, int, int]] = deque()
        self.tokens_consumed = 0

    # ------------------------------------------------------------ the queue

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Queues; nothing runs yet."""
        self._queued.append((program, frame, sequence))

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Runs rounds up to `sequence`."""
        while self._completed < sequence:
            self.run_next()
        return True

    def run_next(self) -> bool:
        """Runs the oldest queued round, if there is one."""
        if not self._queued:
            return False
        program, frame, sequence = self._queued.popleft()
        self.run(self._programs[program], frame)
        self._completed = sequence
        self._completed_ns = time.monotonic_ns()
        return True

    # ------------------------------------------------------------ programs

    def run(self, program: Program, frame: int) -> None:
        """One program, by its operation."""
        lanes = int(self._input("live_rows", frame)[0])
        if "page_table" in program.inputs:
            self._apply_deltas(frame)
        operation = program.operation
        if operation in (Operation.INITIALIZE, Operation.RESTORE, Operation.RESUME):
            for lane in range(lanes):
                self._admit(operation, lane, frame)
        elif operation is Operation.SNAPSHOT:
            for lane in range(lanes):
                self._snapshot(program, lane, frame)
        else:
            self._generate(operation, lanes, frame)

    def _apply_deltas(self, frame: int) -> None:
        count = int(self._words("in.page_table.count", frame)[0])
        table = self._words("page_table", 0)
        index = self._words("in.page_table.index", frame)[:count]
        table[index] = self._words("in.page_table.value", frame)[:count]

    def _admit(self, operation: Operation, lane: int, frame: int) -> None:
        slot = int(self._input("slot", frame)[lane])
        start = int(self._input("consumed", frame)[lane])
        state = self._state()[slot]
        state["pending"] = -1
        if operation is Operation.RESUME:
            state["pending"] = self._input("pending", frame)[lane]
        state["consumed"] = start
        state["emitted"] = self._input("emitted", frame)[lane]
        state["limit"] = self._input("output_limit", frame)[lane]
        state["generation"] = self._input("generation", frame)[lane]
        state["finished"] = 0
        seed = self._view("in.seed", frame).view("<u8")
        state["seed"] = seed[lane]
        eos = self._view("in.eos_ids", frame).view("<i4").reshape(-1, 16)
        self._view("request_state", 0).view(_EOS)[slot]["ids"] = eos[lane]
        source = -1
        if operation is not Operation.INITIALIZE:
            source = int(self._input("restore_row", frame)[lane])
        if self._history.row_state:
            rows = self._rows("rows")
            live = int(self._input("live_row", frame)[lane])
            rows[live] = rows[source] if source >= 0 else 0
        if source >= 0 and start % PAGE_TOKENS:
            page = self._page(slot, start // PAGE_TOKENS)
            for plane in self._history.saved_planes:
                self._rows(plane)[page] = self._rows(f"saved.{plane}")[source]

    def _snapshot(self, program: Program, lane: int, frame: int) -> None:
        slot = int(self._input("slot", frame)[lane])
        state = self._state()[slot]
        if int(state["generation"]) != int(self._input("generation", frame)[lane]):
            return
        named = "consumed" in program.inputs
        endpoint = int(self._input("consumed", frame)[lane] if named else state["consumed"])
        row = int(self._input("snapshot_row", frame)[lane])
        if self._history.row_state:
            rows = self._rows("rows")
            rows[row] = rows[int(self._input("live_row", frame)[lane])]
        if endpoint % PAGE_TOKENS:
            page = self._page(slot, endpoint // PAGE_TOKENS)
            for plane in self._history.saved_planes:
                self._rows(f"saved.{plane}")[row] = self._rows(plane)[page]

    def _generate(self, operation: Operation, lanes: int, frame: int) -> None:
        decoding = lanes if operation is Operation.DECODE else 0
        if operation is Operation.MIXED:
            decoding = int(self._input("prefill_row", frame)[0])
        packed = 0
        for lane in range(lanes):
            length = 1
            if operation is not Operation.DECODE:
                length = int(self._input("query_length", frame)[lane])
            fed = None
            if lane >= decoding:
                fed = self._input("tokens", frame)[packed : packed + length].tolist()
                first = int(self._input("positions", frame)[packed])
                slot = int(self._input("slot", frame)[lane])
                assert first == int(self._state()[slot]["consumed"]), "a prompt skips tokens"
            packed += length
            sample = lane < decoding or bool(self._input("sample", frame)[lane])
            self._step(lane, frame, fed, sample)

    def _step(self, lane: int, frame: int, fed: list[int] | None, sample: bool) -> None:
        slot = int(self._input("slot", frame)[lane])
        generation = int(self._input("generation", frame)[lane])
        state = self._state()[slot]
        error = 0
        if int(state["generation"]) != generation:
            error = 1
        elif state["finished"]:
            error = 2
        emitted = 0
        if not error:
            self._consume(slot, lane, frame, [int(state["pending"])] if fed is None else fed)
            if sample:
                self._sample(slot, lane, frame)
                emitted = 1
        record = self._view("completion.lanes", frame).view("<i4")
        row = record.reshape(-1, COMPLETION_LANE_COLUMNS)[lane]
        finish = int(state["finished"])
        row[:] = (slot, generation, emitted, state["consumed"], finish, -1, -1, 0, 0, error, 0, 0)

    def _consume(self, slot: int, lane: int, frame: int, tokens: list[int]) -> None:
        state, history = self._state()[slot], self._history
        for token in tokens:
            position = int(state["consumed"])
            page, offset = self._page(slot, position // PAGE_TOKENS), position % PAGE_TOKENS
            for plane, there in (("kv", history.key_value), ("window", history.window)):
                if there:
                    self._rows(plane)[page, offset] = key_value_record(token, position)
            if history.row_state:
                row = self._rows("rows")[int(self._input("live_row", frame)[lane])]
                if history.latent:
                    row[0] = fold(int(row[0]), token)
                    if (position + 1) % history.latent == 0:
                        self._rows("latent")[page, offset // history.latent] = row[0]
                        row[0] = 0
                if history.recurrent:
                    row[1] = fold(int(row[1]), token)
                row[2] = hidden(token, position)
            state["consumed"] = position + 1
            self.tokens_consumed += 1

    def _sample(self, slot: int, lane: int, frame: int) -> None:
        state, history = self._state()[slot], self._history
        count = int(state["consumed"])
        rows = (0, 0, 0)
        if history.row_state:
            live = self._rows("rows")[int(self._input("live_row", frame)[lane])]
            rows = (int(live[0]), int(live[1]), int(live[2]))
        token, logprob = output(
            int(state["seed"]),
            self._records(slot, "kv", 0, count) if history.key_value else [],
            self._latent(slot, count),
            self._records(slot, "window", max(0, count - history.window), count)
            if history.window
            else [],
            rows,
        )
        state["pending"] = token
        state["emitted"] += 1
        if token in self._view("request_state", 0).view(_EOS)[slot]["ids"]:
            state["finished"] = 1
        elif state["emitted"] == state["limit"]:
            state["finished"] = 2
        self._view("completion.tokens", frame).view("<i4")[lane] = token
        self._view("completion.logprobs", frame).view("<f4")[lane] = logprob

    # ------------------------------------------------------------ storage

    def _records(self, slot: int, plane: str, first: int, end: int) -> list[int]:
        rows = self._rows(plane)
        return [
            int(rows[self._page(slot, p // PAGE_TOKENS), p % PAGE_TOKENS])
            for p in range(first, end)
        ]

    def _latent(self, slot: int, count: int) -> list[int]:
        ratio = self._history.latent
        if not ratio:
            return []
        rows, records = self._rows("latent"), PAGE_TOKENS // ratio
        return [
            int(rows[self._page(slot, record // records), record % records])
            for record in range(count // ratio)
        ]

    def _page(self, slot: int, number: int) -> int:
        table = self._words("page_table", 0)
        return int(table.reshape(self._slots, -1)[slot, number])

    @property
    def _slots(self) -> int:
        return len(self._state())

    def _state(self) -> NDArray[Any]:
        return self._view("request_state", 0).view(_STATE)

    def _rows(self, plane: str) -> NDArray[np.uint64]:
        planned = self._planned(plane)
        return self._view(plane, 0).view("<u8").reshape(planned)

    def _input(self, name: str, frame: int) -> NDArray[np.int32]:
        return self._words(f"in.{name}", frame)

    def _words(self, name: str, frame: int) -> NDArray[np.int32]:
        return self._view(name, frame).view("<i4")

    def _planned(self, name: str) -> tuple[int, ...]:
        assert self._plan is not None
        return self._plan.buffers[self._number(name)].shape

    def _view(self, name: str, frame: int) -> NDArray[np.uint8]:
        return self.view(self._number(name), frame)

    def _number(self, name: str) -> int:
        assert self._plan is not None
        for number, planned in enumerate(self._plan.buffers):
            if planned.buffer.name == name:
                return number
        raise KeyError(name)
