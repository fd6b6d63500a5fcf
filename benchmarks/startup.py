"""Start-up time: from starting the process to the first 200 of `/ready`.

    python benchmarks/startup.py CORE --accept NAMESPACE [--runs 5] [-- OPTIONS OF helios serve]

Prints the median of the runs with smallest and largest, and the median of each phase. The first
start after boot also reads the core from disk; `--runs` counts what follows one start that isn't
counted, so the figures are those of a warm page cache.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

POLL_S = 0.002
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Start:
    """One start: milliseconds to the listener, to ready, and the server's own phases."""

    listening_ms: float
    ready_ms: float
    phases_ms: dict[str, float]


def measure(core: str, accept: str, options: list[str]) -> Start:
    """Starts a server, waits until it is ready, ends it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "helios.cli", "serve", core, "--accept", accept]
    command.append("--allow-unknown-publisher")
    began = time.perf_counter()
    with subprocess.Popen(
        [*command, "--port", str(port), *options], stdout=subprocess.DEVNULL
    ) as process:
        try:
            return _wait(process, port, began)
        finally:
            process.send_signal(signal.SIGTERM)


def _wait(process: subprocess.Popen[bytes], port: int, began: float) -> Start:
    listening_ms = None
    while time.perf_counter() - began < DEADLINE_S:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with status {process.returncode}")
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.request("GET", "/ready")
            response = connection.getresponse()
            content = response.read()
        except OSError:
            time.sleep(POLL_S)
            continue
        finally:
            connection.close()
        now_ms = (time.perf_counter() - began) * 1e3
        listening_ms = listening_ms or now_ms
        if response.status == 200:
            return Start(listening_ms, now_ms, json.loads(content)["startup_ms"])
        time.sleep(POLL_S)
    raise SystemExit(f"not ready within {DEADLINE_S:g} s")


def show(name: str, values: list[float]) -> None:
    """A row: median, smallest, largest, in milliseconds."""
    median, low, high = statistics.median(values), min(values), max(values)
    print(f"{name:<28}{median:>9.1f}   {low:.1f}..{high:.1f}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("core")
    parser.add_argument("--accept", required=True)
    parser.add_argument("--runs", type=int, default=5)
    # What follows "--" is the server's, wherever the other arguments stand.
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:end])
    arguments.options = given[end + 1 :]
    measure(arguments.core, arguments.accept, arguments.options)
    starts = [
        measure(arguments.core, arguments.accept, arguments.options) for _ in range(arguments.runs)
    ]
    print(f"{'':<28}{'median ms':>9}   of {arguments.runs} starts, smallest..largest")
    show("process to listener answers", [start.listening_ms for start in starts])
    show("process to /ready", [start.ready_ms for start in starts])
    print("phases, as the server counts them (two processes, side by side):")
    for phase in starts[0].phases_ms:
        show(f"  {phase}", [start.phases_ms[phase] for start in starts])


if __name__ == "__main__":
    main()
