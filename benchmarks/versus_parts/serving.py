"""A contestant's server under waves of clients: what each pass measures of it."""

from __future__ import annotations

import http.client
import json
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from . import clients
from .aims import Row
from .drivers import Group
from .engines import Server
from .environments import Unavailable

PROMPT_TOKENS = 64
LONG_PROMPT_TOKENS = 512
OUTPUT_TOKENS = 128
_REPEATS_ALONE = 3
_READY_S = 900.0
_POLL_S = 0.002


class RunningServer(Group):
    """A server from its start on; `ready_s` seconds after it, it was ready and `said_ready`."""

    def __init__(self, server: Server, log: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        command = server.command(self.port)
        self.slots = server.slots
        began = time.perf_counter()
        super().__init__(command.arguments, log, command.environment, asked=False)
        try:
            while (said := self._get(server.ready_path)) is None:
                if self.process.poll() is not None:
                    raise Unavailable(self.complaint())
                if time.perf_counter() - began > _READY_S:
                    raise Unavailable(f"not ready within {_READY_S:g} s")
                time.sleep(_POLL_S)
            self.ready_s = time.perf_counter() - began
            self.said_ready = said
            models = json.loads(self._get("/v1/models") or b"")
        except BaseException:
            self.close()
            raise
        self._model = str(models["data"][0]["id"])

    def _get(self, path: str) -> bytes | None:
        """The content of an answer with status 200, None for anything else."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            content = response.read()
        except OSError:
            return None
        finally:
            connection.close()
        return content if response.status == 200 else None

    def wave(self, draw: random.Random, count: int, prompt: int, output: int) -> clients.Wave:
        """So many clients at once, each with a prompt of its own."""
        every = clients.prompts(draw, count, prompt)
        payloads = [clients.payload(self._model, one, output) for one in every]
        found = clients.wave(self.port, payloads)
        for exchange in found.exchanges:
            if exchange.output_tokens != output:
                raise ValueError(f"{exchange.output_tokens} tokens instead of {output}")
        return found


def measure(server: RunningServer, draw: random.Random) -> Iterator[tuple[Row, float]]:
    """One pass: figures by row, but for that of 32 clients."""
    server.wave(draw, 1, PROMPT_TOKENS, 8)  # the first request touches what no later one does
    alone = [server.wave(draw, 1, PROMPT_TOKENS, OUTPUT_TOKENS) for _ in range(_REPEATS_ALONE)]
    yield Row.HTTP_1, median(one.exchanges[0].decode_rate for one in alone)
    yield Row.HTTP_8, server.wave(draw, 8, PROMPT_TOKENS, OUTPUT_TOKENS).output_rate
    firsts = [server.wave(draw, 1, LONG_PROMPT_TOKENS, 2) for _ in range(_REPEATS_ALONE)]
    yield Row.FIRST_TOKEN, median((one.exchanges[0].first_s or 0.0) * 1e3 for one in firsts)
    server.wave(draw, 8, LONG_PROMPT_TOKENS, OUTPUT_TOKENS)
    memory = server.memory()
    yield Row.SERVING_RSS, memory.rss_nbytes / 1e6
    yield Row.SERVING_PSS, memory.pss_nbytes / 1e6


def measure_many(server: RunningServer, draw: random.Random) -> Iterator[tuple[Row, float]]:
    """As `measure`, with 32 clients."""
    yield Row.HTTP_32, server.wave(draw, 32, PROMPT_TOKENS, OUTPUT_TOKENS).output_rate
