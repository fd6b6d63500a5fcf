"""Two execution frames against one: decode throughput, and what overlaps what.

    python benchmarks/overlap.py CORE --accept NAMESPACE

Two workers serve the same core, one with one frame in flight and one with two; passes take turns,
so that both see the same machine. Prints the medians, their ratio, the device's idle gap between
rounds, and how many rounds were planned, packed and submitted while the one before was running,
with a few of them as a trace.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from helios.core import OpenedCore, open_core
from helios.runtime.device import DeviceOptions
from helios.runtime.model_runtime import ModelRuntime
from helios.scheduler import SchedulerOptions
from helios.worker.channel import InProcessChannel
from helios.worker.messages import FromWorker, Sampling, Shutdown, Submit, TokensEvent
from helios.worker.model_worker import ModelWorker

PROMPT = list(range(100, 116))
GREEDY = Sampling(0.0, 0, 1.0, 0.0, 0)


@dataclass(slots=True)
class TracedRound:
    """Times in ns on one clock: the host's plan and submit (which packs), the device's run."""

    planned: tuple[int, int] = (0, 0)
    submitted: tuple[int, int] = (0, 0)
    ran: tuple[int, int] = (0, 0)


class TracedWorker:
    """A worker on a thread that remembers the times of its rounds."""

    def __init__(self, core: OpenedCore, frames: int, threads: int | None) -> None:
        self._runtime = ModelRuntime.load(
            core, options=DeviceOptions(threads=threads), verify_weights=False
        )
        self._rounds: dict[int, TracedRound] = {}
        self._left = 0
        self._ended = threading.Event()
        self._ids = 0
        self._channel = InProcessChannel(self._deliver)
        options = SchedulerOptions(frames_in_flight=frames)
        worker = ModelWorker(self._runtime, self._channel, options, trace=self._hear)
        self._thread = threading.Thread(target=worker.run)
        self._thread.start()

    def serve(self, lanes: int, tokens: int) -> list[TracedRound]:
        """The decode rounds of `lanes` equal requests that end together."""
        self._rounds.clear()
        self._ended.clear()
        self._left = lanes
        first, self._ids = self._ids, self._ids + lanes
        self._channel.post(
            [Submit(first + lane, PROMPT, tokens, GREEDY, []) for lane in range(lanes)]
        )
        self._ended.wait()
        rounds = [self._rounds[sequence] for sequence in sorted(self._rounds)]
        return rounds[-(tokens - 1) :]

    def close(self) -> None:
        """Ends the worker."""
        self._channel.post([Shutdown()])
        self._thread.join()
        self._runtime.close()

    def _hear(self, step: str, sequence: int, began_ns: int, ended_ns: int, /) -> None:
        if step == "plan":
            self._rounds[sequence] = TracedRound(planned=(began_ns, ended_ns))
        elif step == "submit":
            self._rounds[sequence].submitted = (began_ns, ended_ns)
        elif step == "wait":
            self._rounds[sequence].ran = self._runtime.timing(sequence)

    def _deliver(self, messages: Sequence[FromWorker]) -> None:
        for message in messages:
            if not isinstance(message, TokensEvent):
                raise SystemExit(f"the pass failed: {message}")
            self._left -= message.finish != 0
        if not self._left:
            self._ended.set()


def tokens_per_second(rounds: Sequence[TracedRound], lanes: int) -> float:
    """Decode throughput from the end of the first to the end of the last round."""
    return lanes * (len(rounds) - 1) / (rounds[-1].ran[1] - rounds[0].ran[1]) * 1e9


def idle_us(rounds: Sequence[TracedRound]) -> float:
    """Median time between the end of a round on the device and the start of the next."""
    return median((after.ran[0] - before.ran[1]) / 1e3 for before, after in pairs(rounds))


def pairs(rounds: Sequence[TracedRound]) -> list[tuple[TracedRound, TracedRound]]:
    """Each round with its successor."""
    return list(pairwise(rounds))


def overlapped(before: TracedRound, after: TracedRound) -> bool:
    """Whether `after` was planned, packed and submitted inside the run of `before`."""
    return before.ran[0] <= after.planned[0] and after.submitted[1] <= before.ran[1]


def print_trace(rounds: Sequence[TracedRound], count: int) -> None:
    """The middle `count` pairs of rounds, in µs from the start of the earlier one."""
    print("\ntwo frames, in µs from the start of round n on the device:")
    print("   n  plan n+1           pack and submit n+1  n ends   n+1 starts")
    middle = len(rounds) // 2
    for index in range(middle, middle + count):
        before, after = rounds[index], rounds[index + 1]
        p0, p1, s0, s1, end, start = (
            (moment - before.ran[0]) / 1e3
            for moment in (*after.planned, *after.submitted, before.ran[1], after.ran[0])
        )
        print(
            f"{index:4}  {p0:7.1f} … {p1:7.1f}  {s0:7.1f} … {s1:7.1f}"
            f"  {end:8.1f}  {start:8.1f}  {'inside' if overlapped(before, after) else 'outside'}"
        )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Decode with one frame in flight and with two.")
    parser.add_argument("core")
    parser.add_argument("--accept", required=True)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--passes", type=int, default=9)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    core = open_core(arguments.core, accept=arguments.accept, allow_unknown_publisher=True)
    workers = {frames: TracedWorker(core, frames, arguments.threads) for frames in (1, 2)}
    for lanes in arguments.lanes:
        rates: dict[int, list[float]] = {1: [], 2: []}
        gaps: dict[int, list[float]] = {1: [], 2: []}
        for number in range(arguments.passes + 1):
            for frames in (1, 2) if number % 2 else (2, 1):
                rounds = workers[frames].serve(lanes, arguments.tokens)
                if number:  # the first pass warms up
                    rates[frames].append(tokens_per_second(rounds, lanes))
                    gaps[frames].append(idle_us(rounds))
                    if frames == 2:
                        last = rounds
        ratio = median(two / one for one, two in zip(rates[1], rates[2], strict=True))
        inside = sum(overlapped(*pair) for pair in pairs(last))
        print(
            f"\n{lanes} lanes: one frame {median(rates[1]):.1f} tokens/s, device idle"
            f" {median(gaps[1]):.0f} µs between rounds; two frames {median(rates[2]):.1f}"
            f" tokens/s, idle {median(gaps[2]):.1f} µs; ratio {ratio:.3f};"
            f" {inside} of {len(last) - 1} rounds submitted inside the one before"
        )
    print_trace(last, 5)
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    main()
