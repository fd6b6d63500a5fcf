"""A server under everything that clients do, for as long as it is let, and then its books.

    python benchmarks/soak.py [--minutes 10] [CORE --accept NAMESPACE]

Starts a real server and lets clients ask whole and streamed answers of all kinds (several choices,
stops, penalties, observed tokens, logprobs), read slowly, leave at any point, abort by id, send
what is no request, and reset the prefix cache; the cache is small enough for preemption. Each
answer is compared bit for bit with what the same request got alone before. At the end nothing may
be held: permits, slots, pages, snapshots; nothing may have failed or been logged as an error; and
neither process's private memory may have grown with the requests. Prints figures, and ends with
status 1 if anything of that is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from host import tiny_core
from soak_parts.books import MemorySample, is_quiet, private_kib, slope_kib, unbalanced
from soak_parts.cases import Case, Content, content, make_cases, score_case
from soak_parts.traffic import Tally, Traffic
from soak_parts.wire import Client

_QUIET_S = 60
_SAMPLE_S = 1.0


@dataclass(frozen=True)
class Running:
    """A server's processes and its address."""

    http: int
    worker: int
    client: Client

    async def metrics(self) -> dict[str, float]:
        """Samples by name and labels."""
        lines = (await self.client.ask("/metrics")).body.decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


@dataclass
class Memory:
    """Samples of both processes."""

    http: list[MemorySample] = field(default_factory=list)
    worker: list[MemorySample] = field(default_factory=list)


@contextlib.contextmanager
def serving(core: Path, accept: str, options: list[str], log: Path) -> Iterator[Running]:
    """A server until the block ends; what it writes to its log goes to a file."""
    command = [sys.executable, "-m", "helios.cli", "serve", str(core), "--accept", accept]
    command += ["--allow-unknown-publisher", "--port", "0", *options]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            host, port = process.stdout.readline().split("//")[-1].strip().rsplit(":", 1)
            ready = process.stdout.readline()
            if not ready.startswith("ready:"):
                raise SystemExit(f"the server didn't start: {log.read_text()}")
            print(ready.strip(), flush=True)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield Running(process.pid, int(children[0]), Client((host, int(port))))
        finally:
            process.terminate()
            process.wait(60)


def logged_errors(log: Path) -> list[str]:
    """What a server has written that isn't information."""
    lines = log.read_text().splitlines()
    return [line for line in lines if " error " in line[:60] or line.startswith("Traceback")]


async def answers_alone(client: Client, cases: list[Case]) -> list[Content]:
    """What each case gets while nobody else asks and nothing can be reused."""
    found = []
    for case in cases:
        await client.ask("/reset_prefix_cache", {})
        answer = await client.ask(case.path, case.body)
        if answer.status != 200:
            raise SystemExit(f"{case.kind}: {answer.status} {answer.body[:500]!r}")
        found.append(content(answer, stream=False))
    return found


async def with_scores(client: Client, cases: list[Case], model: str, seed: int) -> list[Case]:
    """The cases and, where the core can score prompts, some that do."""
    source = random.Random(seed)
    scores = [score_case(model, source) for _ in range(max(1, len(cases) // 6))]
    answer = await client.ask(scores[0].path, scores[0].body)
    if answer.status != 200:
        print(f"without scores: {answer.body.decode()[:120]}")
        return cases
    return cases + scores


async def sample_memory(running: Running, tally: Tally, memory: Memory) -> None:
    """Looks at both processes until it is cancelled."""
    while True:
        for samples, pid in ((memory.http, running.http), (memory.worker, running.worker)):
            samples.append(MemorySample(tally.requests, private_kib(pid)))
        await asyncio.sleep(_SAMPLE_S)


async def quiet_metrics(running: Running) -> dict[str, float]:
    """Metrics once nothing is held, or as they are after a minute."""
    for _ in range(_QUIET_S * 2):
        metrics = await running.metrics()
        if is_quiet(metrics):
            break
        await asyncio.sleep(0.5)
    # An idle worker looks at its books; what it finds is counted.
    await asyncio.sleep(1.0)
    return await running.metrics()


async def soak(running: Running, arguments: argparse.Namespace) -> list[str]:
    """Runs the clients and prints figures; what is wrong at the end."""
    client = running.client
    model = (await client.ask("/v1/models")).json()["data"][0]["id"]
    source = random.Random(arguments.seed)
    cases = make_cases(model, arguments.cases, arguments.words, source)
    cases = await with_scores(client, cases, model, arguments.seed)
    expected = await answers_alone(client, cases)
    print(f"{len(cases)} requests, each answered alone", flush=True)
    traffic = Traffic(client, cases, expected, arguments.seed)
    memory, end = Memory(), asyncio.Event()
    before = await running.metrics()
    began = time.monotonic()
    sampling = asyncio.create_task(sample_memory(running, traffic.tally, memory))
    asyncio.get_running_loop().call_later(arguments.minutes * 60, end.set)
    await traffic.run(arguments.clients, end)
    seconds = time.monotonic() - began
    sampling.cancel()
    after = await quiet_metrics(running)
    await client.ask("/reset_prefix_cache", {})
    cleared = await running.metrics()
    return report(traffic.tally, memory, seconds, before, after, cleared, arguments)


def report(
    tally: Tally,
    memory: Memory,
    seconds: float,
    before: dict[str, float],
    after: dict[str, float],
    cleared: dict[str, float],
    arguments: argparse.Namespace,
) -> list[str]:
    """Prints figures; what is wrong."""
    wrong = [*tally.problems, *unbalanced(after), *unbalanced(cleared)]
    if cleared["flare_pages_free"] != cleared["flare_cache_pages"]:
        wrong.append(f"{cleared['flare_pages_free']:g} pages are free after a reset, not all")
    print(
        f"{tally.requests} exchanges in {seconds:.0f} s, {tally.requests / seconds:.0f} a second:"
    )
    print("  " + ", ".join(f"{count} {kind}" for kind, count in tally.done.most_common()))
    print(f"  {tally.refused} refused with 429; {tally.output_tokens} tokens compared")
    for name in (
        "preemptions", "pages_evicted", "snapshots_evicted", "prefix_reused_tokens",
        "http_disconnects",
    ):  # fmt: skip
        key = f"flare_{name}_total"
        print(f"  {name}: {after[key] - before[key]:.0f}")
    for name, samples in (("HTTP process", memory.http), ("worker", memory.worker)):
        slope = slope_kib(samples)
        fifths = [samples[(len(samples) - 1) * part // 5].kib / 1024 for part in range(6)]
        print(
            f"  {name}: {', '.join(f'{mib:.1f}' for mib in fifths)} MiB from fifth to fifth,"
            f" {slope:+.1f} KiB per 1,000 requests"
        )
        if arguments.minutes >= 1 and slope > arguments.slope_kib:
            wrong.append(f"the {name} grows by {slope:.1f} KiB per 1,000 requests")
    return wrong


def main() -> int:
    """Soaks a core, or a tiny one."""
    parser = argparse.ArgumentParser(description="A server under all that clients do.")
    parser.add_argument("core", nargs="?", help="its folder; without one, a tiny core")
    parser.add_argument("--accept", help="the core's namespace")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--cases", type=int, default=60, help="different requests")
    parser.add_argument("--words", type=int, default=110, help="of the longest shared prompt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slope-kib", type=float, default=64, help="per 1,000 requests, at most")
    parser.add_argument("--serve", nargs="*", help="options of `helios serve` instead of the usual")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        core, accept = arguments.core, arguments.accept
        if core is None:
            tiny_core(Path(folder), slots=8, context=1024)
            core, accept = Path(folder) / "core", "host"
        options = arguments.serve
        if options is None:
            options = ["--max-active", "8", "--queue-capacity", "16", "--threads", "1"]
            options += ["--cache-memory", "450KiB"] if arguments.core is None else []
        log = Path(folder) / "log"
        with serving(Path(core), accept, options, log) as running:
            wrong = asyncio.run(soak(running, arguments))
        wrong += logged_errors(log)
    print("\n".join(["books don't balance:", *wrong]) if wrong else "all books balanced")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
