"""The passes: everyone in turn, in process and then over HTTP, as often as asked."""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from .aims import Row, figure
from .drivers import Driver
from .engines import Contestant, Server, Weights
from .environments import Unavailable
from .machine import load
from .serving import (
    LONG_PROMPT_TOKENS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    RunningServer,
    measure,
    measure_many,
)

LANES: Final = {1: Row.DECODE_1, 8: Row.DECODE_8, 32: Row.DECODE_32}


def say(text: str) -> None:
    """Tells how far it is; the tables alone go to standard output."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Distance(Protocol):
    """How far apart two processors are: `machine.PingPong`."""

    def one_way_ns(self) -> float:
        """Nanoseconds that a cache line takes."""
        ...


@dataclass
class Comparison:
    """What has been measured so far, and who was left out and why."""

    cache: Path
    ping_pong: Distance
    samples: dict[tuple[str, Row], list[float]] = field(default_factory=lambda: defaultdict(list))
    skipped: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Skips whoever fails in the block."""
        try:
            yield
        except (Unavailable, OSError, ValueError) as reason:
            self.skipped[name] = str(reason)
            say(f"{name} is skipped: {reason}")

    @contextmanager
    def turn(self, name: str, number: int, row: Row) -> Iterator[dict[Row, float]]:
        """One contestant's turn in a pass, with the distance of the processors on both sides of
        it; takes the figures put into what it yields."""
        before = self.ping_pong.one_way_ns()
        found: dict[Row, float] = {}
        yield found
        after = self.ping_pong.one_way_ns()
        self.samples[name, row] += [before, after]
        for of, value in found.items():
            self.samples[name, of].append(value)
        shown = "; ".join(f"{of} {figure(value)}" for of, value in found.items())
        say(f"pass {number}, {name}, {before:.0f} … {after:.0f} ns, load {load():.1f}: {shown}")

    def log(self, name: str) -> Path:
        """Where a process may write what it likes."""
        return self.cache / "logs" / f"{name.replace(' ', '-')}.log"


def in_process(comparison: Comparison, everyone: Sequence[Contestant], passes: int) -> None:
    """Decode and prefill rates, everyone loaded all the time."""
    drivers: dict[Contestant, Driver] = {}
    try:
        for one in everyone:
            if one.driver is None:
                continue
            with comparison.attempt(one.name):
                command = one.driver()
                say(f"loading {one.name}")
                driver = Driver(command.arguments, comparison.log(one.name), command.environment)
                drivers[one] = driver
                # The first request allocates, compiles and picks what later ones only use.
                driver.ask("prefill", tokens=LONG_PROMPT_TOKENS)
                driver.ask("decode", lanes=1, prompt_tokens=PROMPT_TOKENS, tokens=8)
                driver.rest()
        for number in range(1, passes + 1):
            for one, driver in drivers.items():
                if one.name in comparison.skipped:
                    continue
                with (
                    comparison.attempt(one.name),
                    driver.awake(),
                    comparison.turn(one.name, number, Row.DISTANCE) as found,
                ):
                    found |= _rates(driver, one)
    finally:
        for driver in drivers.values():
            driver.close()


def _rates(driver: Driver, one: Contestant) -> dict[Row, float]:
    found = {Row.PREFILL: driver.ask("prefill", tokens=LONG_PROMPT_TOKENS)["tokens_per_s"]}
    for lanes, row in LANES.items():
        answer = driver.ask(
            "decode", lanes=lanes, prompt_tokens=PROMPT_TOKENS, tokens=OUTPUT_TOKENS
        )
        found[row] = answer["tokens_per_s"]
    if one.weights is Weights.BF16:
        found[Row.DECODE_1_BF16] = found[Row.DECODE_1]
    return found


def over_http(comparison: Comparison, everyone: Sequence[Contestant], passes: int) -> None:
    """Each one's server, started anew for each pass unless that takes too long."""
    kept: dict[str, RunningServer] = {}
    draw = random.Random(1)
    try:
        for number in range(1, passes + 1):
            for one in everyone:
                if one.servers is None or one.name in comparison.skipped:
                    continue
                with comparison.attempt(one.name):
                    servers = one.servers()
                    with comparison.turn(one.name, number, Row.DISTANCE_SERVING) as found:
                        for server in servers:
                            found |= _served(comparison, one, server, servers, kept, draw)
    finally:
        for running in kept.values():
            running.close()


def _served(
    comparison: Comparison,
    one: Contestant,
    server: Server,
    servers: Sequence[Server],
    kept: dict[str, RunningServer],
    draw: random.Random,
) -> dict[Row, float]:
    """What one server of a contestant gives in a pass."""
    found: dict[Row, float] = {}
    running = kept.get(one.name)
    if running is None:
        running = RunningServer(server, comparison.log(f"{one.name} server"))
        if server is servers[0]:
            found[Row.READY] = running.ready_s
        if server.kept:
            kept[one.name] = running
    try:
        with running.awake():
            if server is servers[0]:
                found |= dict(measure(running, draw))
            if server.slots >= 32:
                found |= dict(measure_many(running, draw))
    finally:
        if not server.kept:
            running.close()
    return found
