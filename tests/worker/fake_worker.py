"""A worker process over the fake model, for the client's tests: `fake_worker.py MODE FD`.

It goes through the same channel and loop as the real process; MODE says how it misbehaves.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from helios.runtime.rounds import Completion
from helios.worker.messages import BooksBroken, WorkerFailed, WorkerReady
from helios.worker.model_worker import ModelWorker
from helios.worker.order import receive_order
from helios.worker.process import open_channel
from tests.scheduler.fake_geometry import NO_RULES
from tests.scheduler.fake_model import FakeModel, geometry
from tests.scheduler.histories import PARTIAL_PAGES


class DyingModel(FakeModel):
    """Takes the process down with its third round."""

    def read(self, sequence: int) -> Completion:
        if sequence == 3:
            os._exit(7)
        return super().read(sequence)


def main(mode: str, descriptors: str) -> int:
    connection = socket.socket(fileno=int(descriptors))
    if receive_order(connection) is None:
        return 0
    channel = open_channel(connection, [])
    if mode.startswith("no_core"):
        channel.send([WorkerFailed("CoreError", "demo.core: is no folder")])
        if mode == "no_core and stays":
            channel.receive(block=True)
        channel.close()
        return 1
    if mode == "garbage":
        os.write(int(descriptors), b"\xff" * 64)
        channel.receive(block=True)
        return 0
    if mode == "loading":
        channel.receive(block=True)
        return 0
    rules = PARTIAL_PAGES.rules if mode == "reuses" else NO_RULES
    shape = geometry(pages=64, slots=8, history=rules)
    model = DyingModel(geometry()) if mode == "dies" else FakeModel(shape)
    if mode.startswith("breaks"):
        model.breaks_at = 3
    channel.send([WorkerReady("fake", 8, 0, 64, 1 << 16, 4, 40, 16, {"load": 1.0})])
    if mode == "unsound":
        channel.send([BooksBroken("a page is lost")])
    worker = ModelWorker(model, channel)
    if mode == "loses a page":
        worker.scheduler.pages._free.pop()
    try:
        worker.run()
    finally:
        if mode == "breaks and stays":
            channel.receive(block=True)
        channel.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
