"""A model worker whose device computes nothing: `null_worker.py BOARD ROUND_MS FD[,DOOR]`.

Everything else is the real worker: its loop, scheduler, packing, records and socket. A round takes
ROUND_MS of sleep (0: none), since a device that needs no time is no device. BOARD is a file of two
numbers that this process keeps up to date: nanoseconds of CPU that the device's script took, which
no real device would, and tokens emitted.
"""

from __future__ import annotations

import gc
import mmap
import socket
import struct
import sys
import time
from pathlib import Path

from helios.core import OpenedCore
from helios.runtime.devices.scripted import ScriptedDevice
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.runtime.targets import deployed_rank, read_manifest
from helios.worker.messages import WorkerReady
from helios.worker.model_worker import ModelWorker
from helios.worker.order import receive_order
from helios.worker.process import open_channel
from helios.worker.served_core import open_served_core

BOARD = struct.Struct("<QQ")
_FIRST_TEXT_TOKEN = 40  # printable ones, in the tests' vocabulary
_TEXT_TOKENS = 50


class PacedDevice(ScriptedDevice):
    """Answers once a round's time is over, and keeps the board."""

    def __init__(self, core: OpenedCore, rank: object, board: mmap.mmap, round_s: float) -> None:
        super().__init__(core.contract, rank, self._says)  # type: ignore[arg-type]
        self._board = board
        self._round_s = round_s
        self._due = 0.0
        self._cpu_ns = 0
        self._tokens = 0

    def _says(self, slot: int, position: int) -> tuple[int, float]:
        self._tokens += 1
        return _FIRST_TEXT_TOKEN + (slot + position) % _TEXT_TOKENS, -0.5

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Sleeps until the round would be over, then plays it."""
        if self._completed < sequence and self._round_s:
            now = time.monotonic()
            self._due = max(self._due + self._round_s, now)
            time.sleep(self._due - now)
        began = time.thread_time_ns()
        answered = super().wait(sequence, timeout_ms)
        self._cpu_ns += time.thread_time_ns() - began
        BOARD.pack_into(self._board, 0, self._cpu_ns, self._tokens)
        return answered


def main(board: str, round_ms: str, descriptors: str) -> None:
    """Serves until the client goes."""
    first, *doors = (socket.socket(fileno=int(one)) for one in descriptors.split(","))
    options = receive_order(first)
    if options is None:
        return
    channel = open_channel(first, doors)
    core = open_served_core(options)
    rank = deployed_rank(core, options.target)
    manifest = read_manifest(core, rank)
    weights = {name: core.map_weights(name, verify=False).content for name in rank.weight_resources}
    with Path(board).open("r+b") as file:
        shared = mmap.mmap(file.fileno(), BOARD.size)
    device = PacedDevice(core, manifest, shared, float(round_ms) / 1e3)
    capacities = Capacities(request_slots=options.request_slots)
    runtime = ModelRuntime(core.contract, manifest, weights, device, capacities)
    shape = runtime.geometry
    gc.collect()
    gc.freeze()
    channel.send(
        [
            WorkerReady(
                "null",
                shape.request_slots,
                0,
                shape.cache_pages,
                shape.cache_nbytes,
                shape.page_tokens,
                shape.max_context_tokens,
                shape.request_slots,
                {},
            )
        ]
    )
    try:
        ModelWorker(runtime, channel).run()
    finally:
        channel.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
