"""A server of several HTTP processes, and connections of which a test knows whose they are."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.server.real import COMMAND, DEADLINE_S, NAMESPACE

_CONNECTIONS = 400  # that all processes have one among so many isn't left to luck


def owner(connection: socket.socket, pids: list[int]) -> int:
    """The process whose end the other end of a local connection is."""
    port, theirs = connection.getsockname()[1], connection.getpeername()[1]
    inode = None
    while inode in (None, "0"):  # it belongs to nobody until it has been accepted
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            ends = [int(address.rsplit(":", 1)[1], 16) for address in fields[1:3]]
            if ends == [theirs, port]:
                inode = fields[9]
    while True:
        for pid in pids:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if descriptor.readlink().name == f"socket:[{inode}]":
                        return pid


def ends(pid: int) -> bool:
    """Waits until a process has ended that needn't be a child; False if it doesn't."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], DEADLINE_S)[0])
    finally:
        os.close(descriptor)


@dataclass
class Processes:
    """A server whose HTTP processes all serve."""

    process: subprocess.Popen[str]
    host: str
    port: int
    log: Path

    @property
    def worker(self) -> int:
        """The model worker's process id."""
        (found,) = (pid for pid in self._children() if "helios.worker" in _command(pid))
        return found

    @property
    def others(self) -> list[int]:
        """Process ids of the HTTP processes beside the first one."""
        return [pid for pid in self._children() if "http_child" in _command(pid)]

    @property
    def http(self) -> list[int]:
        """Process ids of all HTTP processes."""
        return [self.process.pid, *self.others]

    def _children(self) -> list[int]:
        pid = self.process.pid
        threads = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for thread in threads for child in thread.read_text().split()]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @contextlib.contextmanager
    def client(self, pid: int) -> Iterator[httpx.Client]:
        """A client with one connection, which that process has. Its kernel takes next to nothing
        of an answer that it doesn't read."""
        for _ in range(_CONNECTIONS):
            small = (socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            transport = httpx.HTTPTransport(
                limits=httpx.Limits(max_connections=1, keepalive_expiry=None),
                socket_options=[small],
            )
            client = httpx.Client(transport=transport, base_url=self.url, timeout=DEADLINE_S)
            with client.stream("GET", "/version") as response:
                connection = response.extensions["network_stream"].get_extra_info("socket")
                found = owner(connection, self.http)
                response.read()
            if found == pid:
                break
            client.close()
        else:
            raise AssertionError(f"process {pid} gets no connections")
        with contextlib.closing(client):
            yield client

    def metrics(self, client: httpx.Client) -> dict[str, float]:
        """Samples of `/metrics` by name and labels, as they are written."""
        lines = client.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@contextlib.contextmanager
def http_processes(core: Path, log: Path, count: int, *options: Any) -> Iterator[Processes]:
    """Serves `core` with so many HTTP processes until the block ends; standard error goes to
    `log`."""
    command = [*COMMAND, "serve", str(core), "--accept", NAMESPACE, "--port", "0"]
    command += ["--threads", "1", "--http-workers", str(count), *map(str, options)]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            address = httpx.URL(process.stdout.readline().split()[-1])
            lines = iter(process.stdout.readline, "")
            serving = next(line for line in lines if line.startswith("serving with"))
            assert serving == f"serving with {count} of {count} HTTP processes\n"
            assert address.port is not None
            yield Processes(process, address.host, address.port, log)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
