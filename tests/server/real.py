"""`helios serve` as a process, over a tiny random core on a real socket."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from ignition.preparation.options import Options

NAMESPACE = "tests"
# What the served core is prepared with.
CORE_OPTIONS = Options(
    namespace=NAMESPACE,
    served_id="tiny",
    aliases=("little",),
    max_active=8,
    prefill=(32, 128),
    decode=(1, 4, 8),
)
COMMAND = (sys.executable, "-m", "helios.cli")
DEADLINE_S = 120


def run_cli(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    """A `helios` command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@dataclass
class ServerProcess:
    """A server that said it is ready, in the line `ready`."""

    process: subprocess.Popen[str]
    url: str
    http: httpx.Client
    ready: str

    def metrics(self) -> dict[str, float]:
        """Samples of `/metrics` by name and labels, as they are written."""
        lines = self.http.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def metrics_until(self, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        """The first metrics for which `condition` holds. They are read over and over: what is
        waited for happens in another process."""
        for _ in range(20_000):
            metrics = self.metrics()
            if condition(metrics):
                return metrics
        raise AssertionError(f"never came true; last: {metrics}")

    def terminate(self) -> int:
        """Asks the server to end; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def worker_pid(self) -> int:
        """The process id of its model worker."""
        (pid,) = self._children("helios.worker")
        return pid

    def http_pids(self) -> list[int]:
        """The process ids of its HTTP processes but the first."""
        return self._children("helios.server.http_child")

    def _children(self, module: str) -> list[int]:
        """Child processes that run a module."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in children}
        return [child for child, line in found.items() if f"\0{module}\0" in line]


@contextlib.contextmanager
def server_process(core: Path, *options: str) -> Iterator[ServerProcess]:
    """Serves `core` until the block ends."""
    command = [*COMMAND, "serve", str(core), "--accept", NAMESPACE, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            ready = process.stdout.readline()
            assert ready.startswith("ready: ")
            with httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
                yield ServerProcess(process, url, http, ready)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
