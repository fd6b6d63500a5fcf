"""Host work of a round: everything between the end of one wait and the start of the next.

    python benchmarks/host.py [CORE --accept NAMESPACE] [--ranks N]

Serves decode rounds through the worker's loop, the packer and a local socket, on a device that
computes nothing: its programs answer from a script while the worker waits, and that time isn't
counted. Prints medians in microseconds for the whole turn and by step. Without a core, of a tiny
one with 256 request slots, which is made for it: growth up to 256 lanes. Aims: at most 60 µs a turn
at 1 lane, 110 µs at 32, 600 µs at 256.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

from helios import collector
from helios.core import OpenedCore, open_core
from helios.runtime.devices.scripted import ScriptedDevice
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.runtime.rank_group import RankGroup
from helios.runtime.targets import deployed_rank, read_manifest
from helios.worker.channel import SocketChannel, encode_batch
from helios.worker.messages import Sampling, Submit
from helios.worker.model_worker import ModelWorker

WARM_UP_ROUNDS = 50
STEPS = ("complete", "send", "plan", "submit")
SLOTS = 256
_TOKEN = (1, -0.5)
_SINK = bytearray(1 << 20)


class HostDevice(ScriptedDevice):
    """Is the worker's client too: reads what the worker sends, and goes away with round `last`."""

    client: socket.socket
    last: int

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Answers, and reads what the worker has sent."""
        answered = super().wait(sequence, timeout_ms)
        if sequence <= self.last:
            with suppress(BlockingIOError):
                while self.client.recv_into(_SINK):
                    pass
        if sequence == self.last:
            self.client.close()
        return answered


class TurnTrace:
    """Durations in µs: of whole turns (wait to wait) and of their steps."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, list[float]] = defaultdict(list)
        self.turns: list[float] = []
        self._waited_ns = 0

    def __call__(self, step: str, sequence: int, began_ns: int, ended_ns: int, /) -> None:
        """Hears a step of the worker."""
        if sequence <= WARM_UP_ROUNDS and step != "send":
            return
        if step == "wait":
            if self._waited_ns:
                self.turns.append((began_ns - self._waited_ns) / 1e3)
            self._waited_ns = ended_ns
        elif step != "wait":
            self.steps[step].append((ended_ns - began_ns) / 1e3)


def measure(core: OpenedCore, lanes: int, rounds: int, ranks: int) -> TurnTrace:
    """Serves `lanes` requests for `rounds` rounds, on so many ranks that are all alike."""
    client, theirs = socket.socketpair()
    rank = deployed_rank(core, "cpu")
    manifest = read_manifest(core, rank)
    device = HostDevice(core.contract, manifest, lambda slot, position: _TOKEN)
    device.client, device.last = client, rounds
    weights = {name: core.map_weights(name, verify=False).content for name in rank.weight_resources}
    devices = [device]
    for _ in range(1, ranks):
        devices.append(ScriptedDevice(core.contract, manifest, lambda slot, position: _TOKEN))
    runtimes = [
        ModelRuntime(core.contract, manifest, weights, one, Capacities(request_slots=lanes))
        for one in devices
    ]
    runtime = runtimes[0] if ranks == 1 else RankGroup(runtimes)
    greedy = Sampling(0.0, 0, 1.0, 0.0, 0)
    requests = [Submit(i, [i % 97 + 1] * 8, rounds, greedy, [2]) for i in range(lanes)]
    client.sendall(encode_batch(requests))
    client.setblocking(False)
    trace = TurnTrace()
    channel = SocketChannel(theirs)
    worker = ModelWorker(runtime, channel, trace=trace)
    collector.settle(collector.YOUNG_OBJECTS)  # as the worker's process does
    worker.run()
    channel.close()
    runtime.close()
    return trace


def tiny_core(folder: Path, *, slots: int = SLOTS, context: int = 4096) -> OpenedCore:
    """A core of random weights for so many requests at once."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from tests.checkpoints import VARIANTS, write_huggingface
    from tests.silence import Silent

    from ignition.preparation.prepare import Options, prepare

    options = Options(
        namespace="host",
        served_id="host",
        max_active=slots,
        prefill=(64, 512),
        decode=tuple(lanes for lanes in (1, 8, 32, 64, 128, SLOTS) if lanes <= slots),
        max_context=context,
    )
    variant = replace(VARIANTS["llama"], context=context)
    checkpoint = write_huggingface(folder / "checkpoint", variant)
    prepare(checkpoint, folder / "core", options, Ed25519PrivateKey.generate(), Silent())
    return open_core(folder / "core", accept="host", allow_unknown_publisher=True)


def report(core: OpenedCore, lane_counts: list[int], rounds: int, ranks: int) -> None:
    """Measures and prints a table."""
    print("lanes  turn µs  (p95)  " + "  ".join(f"{step:>8}" for step in STEPS))
    for lanes in lane_counts:
        trace = measure(core, lanes, rounds, ranks)
        p95 = quantiles(trace.turns, n=20)[-1]
        steps = "  ".join(f"{median(trace.steps[step]):8.1f}" for step in STEPS)
        print(f"{lanes:5}  {median(trace.turns):7.1f}  {p95:5.0f}  {steps}", flush=True)


def main() -> None:
    """Measures a core, or the tiny one."""
    parser = argparse.ArgumentParser(description="Host work of a decode round, in microseconds.")
    parser.add_argument("core", nargs="?")
    parser.add_argument("--accept")
    parser.add_argument("--lanes", type=int, nargs="+")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--ranks", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.core is not None:
        core = open_core(arguments.core, accept=arguments.accept, allow_unknown_publisher=True)
        report(core, arguments.lanes or [1, 8, 32], arguments.rounds, arguments.ranks)
        return
    with tempfile.TemporaryDirectory() as folder:
        lanes = arguments.lanes or [1, 8, 32, 64, 128, SLOTS]
        report(tiny_core(Path(folder)), lanes, arguments.rounds, arguments.ranks)


if __name__ == "__main__":
    main()
