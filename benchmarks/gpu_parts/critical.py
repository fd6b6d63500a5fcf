"""Serves waves of requests through a worker's loop and says what its critical path takes."""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from gpu_parts.loop_steps import LoopSteps
from gpu_parts.moments import Moments, TimedRuntime, WaveChannel
from helios import collector
from helios.runtime.model_runtime import ModelRuntime
from helios.scheduler import SchedulerOptions
from helios.worker.messages import Sampling, Submit
from helios.worker.model_worker import ModelWorker

PROMPT_TOKENS, OUTPUT_TOKENS = 64, 256
GREEDY = Sampling(0.0, 0, 1.0, 0.0, 0)
Figures = dict[str, float]


def waves(draw: random.Random, every: Sequence[int], passes: int) -> Iterator[list[Submit]]:
    """For each number of lanes a wave to warm up, then one a pass."""
    ids = itertools.count()
    for lanes in (lanes for lanes in every for _ in range(passes + 1)):
        prompts = [[draw.randrange(1, 60) for _ in range(PROMPT_TOKENS)] for _ in range(lanes)]
        yield [Submit(next(ids), prompt, OUTPUT_TOKENS, GREEDY, []) for prompt in prompts]


def measure(
    runtime: ModelRuntime, every: Sequence[int], frames: int, passes: int, *, steps: bool
) -> dict[int, Figures]:
    """Serves waves of requests with so many rounds in flight: the figures by lanes. A runtime
    serves once, since it knows what a worker's slots hold."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    timed = TimedRuntime(runtime, ours)
    kept: list[Moments] = []
    stepped: list[Figures] = []

    def between() -> None:
        kept.append(timed.moments)
        timed.moments = Moments()
        stepped.append({} if stepping is None else stepping.take_us())

    channel = WaveChannel(theirs, waves(random.Random(1), every, passes), between)
    options = SchedulerOptions(frames_in_flight=frames, prefix_reuse=False)
    worker = ModelWorker(timed, channel, options)
    stepping = LoopSteps(worker) if steps else None
    collector.settle(collector.YOUNG_OBJECTS)  # as the worker's process does
    worker.run()
    ours.close()
    channel.close()
    found: dict[int, Figures] = {}
    for number, lanes in enumerate(every):
        # Before the first wave there is an empty one; each number of lanes has one to warm up.
        first = 2 + number * (passes + 1)
        found[lanes] = _figures(kept[first : first + passes], frames)
        for name in stepped[first]:
            found[lanes][f"step: {name}"] = median(
                one[name] for one in stepped[first : first + passes]
            )
    return found


def _figures(passes: Sequence[Moments], frames: int) -> Figures:
    host = [one.host_us(frames) for one in passes]
    return {
        "host": median(map(median, host)),
        "host p95": median(quantiles(values, n=20)[-1] for values in host),
        "idle": median(median(one.idle_us()) for one in passes),
        "lag": median(median(one.lag_us()) for one in passes),
        "device": median(median(one.device_us()) for one in passes),
    }
