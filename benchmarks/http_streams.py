"""What a streamed token costs the host: CPU time of the HTTP processes and of the worker.

    python benchmarks/http_streams.py [--http-workers N] [--round-ms 20] [--passes 9]
    python benchmarks/http_streams.py --requests 200000

Serves 256 concurrent streams of a tiny core over real sockets; the model worker is the real one on
a device that computes nothing and takes 20 ms a round. Per pass, of a second or so, it reads the
CPU time that each process used, user and system, from the kernel, and divides by the tokens that
were emitted meanwhile; the worker's doesn't count what the device's script took. The clients run in
this process and aren't counted; but waking them is the server's work on this machine, as it isn't
where clients are elsewhere, so `--nap-ms 2` lets them look every 2 ms only. Aims, medians of the
passes: 15 µs a token in the HTTP process and 10 µs in the worker. Then the gaps between two tokens
of a stream as a client sees them.

With `--requests` it makes so many short streamed requests instead and shows how much memory the
processes have along the way.

(A script of the name `http.py` would hide Python's own `http` module from its neighbours.)
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from host import SLOTS, tiny_core
from http_parts.load import Received, request, stream
from http_parts.null_worker import BOARD

_PARTS = Path(__file__).parent / "http_parts"
_PROMPT = [65, 66, 67, 68, 69, 70, 71, 72]
_WARM_UP_S = 2.0
_CONTEXT = 4096


@dataclass(frozen=True)
class Processes:
    """The server's processes and where it listens."""

    address: tuple[str, int]
    http: tuple[int, ...]
    worker: int
    board: Path


@contextmanager
def serving(folder: Path, round_ms: float, http_workers: int) -> Iterator[Processes]:
    """A server over the core in `folder`, until the block ends."""
    board = folder / "board"
    board.write_bytes(bytes(BOARD.size))
    command = [sys.executable, str(_PARTS / "null_server.py"), str(folder / "core"), str(board)]
    command += [str(round_ms), str(SLOTS), str(http_workers)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rsplit(":", 1)[1])
            line = process.stdout.readline()
            ready = "serving with" if http_workers > 1 else "ready: "
            while not line.startswith(ready):
                line = process.stdout.readline()
            found = _processes(process.pid)
            worker = next(pid for pid, line in found.items() if "null_worker.py" in line)
            http = (process.pid, *(pid for pid in found if pid != worker))
            yield Processes(("127.0.0.1", port), http, worker, board)
        finally:
            process.terminate()
            process.wait()


def _processes(parent: int) -> dict[int, str]:
    """Child processes with their command lines."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in children}


def _cpu_ns(pid: int) -> int:
    """CPU time of a process so far, user and system."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads)


def _resident_kib(pid: int) -> int:
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0])


@dataclass(frozen=True)
class Pass:
    """µs of CPU a token: of all HTTP processes together and of the worker."""

    http: float
    worker: float
    tokens_per_s: float


def measure(processes: Processes, passes: int, seconds: float) -> Iterator[Pass]:
    """Passes over a server whose streams are running."""

    def now() -> tuple[float, int, int, int]:
        device_ns, tokens = BOARD.unpack(processes.board.read_bytes())
        http_ns = sum(_cpu_ns(pid) for pid in processes.http)
        return time.monotonic(), http_ns, _cpu_ns(processes.worker) - device_ns, tokens

    before = now()
    for _ in range(passes):
        time.sleep(seconds)
        after = now()
        elapsed, http_ns, worker_ns, tokens = (b - a for a, b in zip(before, after, strict=True))
        yield Pass(http_ns / tokens / 1e3, worker_ns / tokens / 1e3, tokens / elapsed)
        before = after


def streams(arguments: argparse.Namespace, folder: Path) -> None:
    """Measures 256 streams that go on."""
    body = {"model": "host", "prompt": _PROMPT, "stream": True, "ignore_eos": True}
    body |= {"max_tokens": _CONTEXT - len(_PROMPT)} | arguments.fields
    with serving(folder, arguments.round_ms, arguments.http_workers) as processes:
        seen, done = Received(), threading.Event()
        payload = request("/v1/completions", body)
        clients = threading.Thread(
            target=stream,
            args=(processes.address, payload, arguments.streams, seen, lambda: not done.is_set()),
            kwargs={"nap_s": arguments.nap_ms / 1e3},
        )
        clients.start()
        try:
            time.sleep(_WARM_UP_S)
            seen.gaps.clear()
            events, began = seen.events, BOARD.unpack(processes.board.read_bytes())[1]
            found = list(measure(processes, arguments.passes, arguments.seconds))
            tokens = BOARD.unpack(processes.board.read_bytes())[1] - began
            events = seen.events - events
        finally:
            done.set()
            clients.join()
        _print_passes(found, processes)
        print(f"tokens an event: {tokens / events:.2f}; where it isn't 1, some came late together")
        gaps = quantiles((gap * 1e3 for gap in seen.gaps), n=100)
        print(
            f"gap between two arrivals of a stream, ms: median {gaps[49]:.1f}, p99 {gaps[98]:.1f},"
            f" largest {max(seen.gaps) * 1e3:.1f} (a round takes {arguments.round_ms:g})"
        )


def _print_passes(found: list[Pass], processes: Processes) -> None:
    rate = median(one.tokens_per_s for one in found)
    print(f"{len(found)} passes, {rate:.0f} tokens/s; µs of CPU a token, median (min..max):")
    for name, values in (
        (f"HTTP ({len(processes.http)})", [one.http for one in found]),
        ("worker", [one.worker for one in found]),
    ):
        print(f"{name:>10}  {median(values):5.1f}  ({min(values):.1f}..{max(values):.1f})")


def requests(arguments: argparse.Namespace, folder: Path) -> None:
    """Makes short requests and shows memory along the way."""
    body = {"model": "host", "prompt": _PROMPT, "max_tokens": 4, "stream": True}
    payload = request("/v1/completions", body | arguments.fields)
    with serving(folder, 0, arguments.http_workers) as processes:
        seen = Received()
        clients = threading.Thread(
            target=stream,
            args=(processes.address, payload, 64, seen, lambda: True, arguments.requests),
        )
        began = time.monotonic()
        clients.start()
        print("requests  HTTP MiB  worker MiB")
        shown = 0
        while clients.is_alive():
            clients.join(0.2)
            seen.gaps.clear()
            if seen.answers >= shown:
                http = sum(_resident_kib(pid) for pid in processes.http) / 1024
                worker = _resident_kib(processes.worker) / 1024
                print(f"{seen.answers:8}  {http:8.1f}  {worker:10.1f}", flush=True)
                shown += arguments.requests // 20
        took = time.monotonic() - began
        print(f"{seen.answers} requests in {took:.0f} s")


def _field(text: str) -> tuple[str, object]:
    import json

    name, value = text.split("=", 1)
    return name, json.loads(value)


def main() -> None:
    """Measures what the command line says."""
    parser = argparse.ArgumentParser(description="CPU time of a streamed token.")
    parser.add_argument("--http-workers", type=int, default=1)
    parser.add_argument("--streams", type=int, default=SLOTS)
    parser.add_argument("--round-ms", type=float, default=20.0)
    parser.add_argument("--nap-ms", type=float, default=0.0, help="clients look only so often")
    parser.add_argument("--passes", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a pass")
    parser.add_argument("--requests", type=int, help="so many short ones, watching memory")
    parser.add_argument("--field", type=_field, action="append", default=[], help="NAME=JSON")
    arguments = parser.parse_args()
    arguments.fields = dict(arguments.field)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny_core(folder)
        (requests if arguments.requests else streams)(arguments, folder)


if __name__ == "__main__":
    main()
