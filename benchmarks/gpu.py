"""Steps, prefill, start and HTTP rates of cores on a GPU, beside what vLLM took on the same kind.

    python benchmarks/gpu.py CORE… --accept NAMESPACE [--target cuda:sm_90]
        [--parts steps,host,prefill,start,http] [--passes 5]

Steps: `lanes` greedy requests of 64 random tokens make 256 more each; a step is the time between a
request's first and last token as they leave the worker, over 255, the median of the requests. Host:
with one and two rounds in flight, the time from seeing a round complete to having launched the next
that was free to go, and by the GPU's stamps how long it idles between two rounds, how long after
its end a round was seen to have ended, and what a round takes. Nothing traces; `critical_path.py`
says how, and times each step with `--steps`. Prefill: wall time of one token after a fresh random
prompt. Start: `helios serve` from the process's start to its first 200 of /ready, and the phases as
the server counts them. HTTP: `helios serve` under one client (time between its tokens) and under
128. Medians of the passes with min..max, the per cent of the floor that reading the weights sets,
and the ratio to the peer. Rates of copying and of products are measured by `gpu_accumulation.py`;
the floor takes 4.2 TB/s.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from gpu_parts.aims import HTTP_GAP_MS, HTTP_RATE, LANES, PROMPTS, Bar, bars_of
from gpu_parts.critical import measure
from gpu_parts.timed_worker import TimedWorker
from helios.core import open_core
from helios.engine import Engine, GenerationOptions
from helios.runtime.manifest import BufferClass
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.targets import deployed_rank, read_manifest
from prerequisites import needs_gpu
from versus_parts.engines import Command, Server
from versus_parts.serving import RunningServer

COPY_TB_S = 4.2
PROMPT_TOKENS = 64
STEP_TOKENS = 256
PREFILL_PASSES = 9  # at least; as many as the peer's figures are of
HTTP_TOKENS = 128
HTTP_CLIENTS = 128
PARTS = ("steps", "host", "prefill", "start", "http")


@dataclass(frozen=True)
class Figure:
    """A row: its samples, the peer's figure with the aim, the floor in the same unit."""

    model: str
    row: str
    samples: tuple[float, ...]
    bar: Bar | None = None
    floor: float | None = None
    more_is_better: bool = False

    def line(self) -> str:
        """The row of a table."""
        value = median(self.samples)
        text = f"| {self.model} | {self.row} | {value:.4g}"
        text += f" ({min(self.samples):.4g}..{max(self.samples):.4g})"
        text += f" | {'' if self.floor is None else f'{100 * self.floor / value:.0f} %'}"
        if self.bar is None:
            return text + " | | | |"
        ratio = value / self.bar.peer
        met = value >= self.bar.aim if self.more_is_better else value <= self.bar.aim
        text += (
            f" | {self.bar.peer:g} | {ratio:.2f} | {self.bar.aim:g} {'met' if met else 'missed'}"
        )
        return text + " |"


@dataclass(frozen=True)
class Model:
    """A core, and how it is opened."""

    core: Path
    accept: str
    target: str

    @property
    def name(self) -> str:
        """The folder's name, which says what is in it."""
        return self.core.name

    def open(self) -> Engine:
        """In process, with weights and oracle checked."""
        return Engine.open(
            self.core, accept=self.accept, allow_unknown_publisher=True, target=self.target
        )

    def worker(self) -> TimedWorker:
        """Its worker on a thread."""
        return TimedWorker(str(self.core), self.accept, self.target)

    def runtime(self) -> ModelRuntime:
        """What a worker runs rounds on."""
        core = open_core(self.core, accept=self.accept, allow_unknown_publisher=True)
        return ModelRuntime.load(core, target=self.target, verify_weights=False)

    def weights_nbytes(self) -> int:
        """Bytes that a step of one lane reads: all but a table that only gives rows."""
        core = open_core(self.core, accept=self.accept, allow_unknown_publisher=True)
        manifest = read_manifest(core, deployed_rank(core, self.target))
        tied = not any(b.name == "head" for b in manifest.buffers)
        return sum(
            b.nbytes
            for b in manifest.buffers
            if b.buffer_class is BufferClass.WEIGHT and (tied or b.name != "embedding")
        )

    def server(self) -> Server:
        """Its server on a port."""

        def command(port: int) -> Command:
            arguments = [
                sys.executable, "-m", "helios.cli", "serve", str(self.core),
                "--accept", self.accept, "--allow-unknown-publisher", "--target", self.target,
                "--port", str(port), "--log-level", "warning",
            ]  # fmt: skip
            return Command(arguments)

        return Server(command=command, ready_path="/ready", slots=HTTP_CLIENTS)


def prompts(draw: random.Random, count: int, tokens: int) -> list[list[int]]:
    """Random ids, so that no prefix is known."""
    return [[draw.randrange(100, 40_000) for _ in range(tokens)] for _ in range(count)]


def generated(engine: Engine, every: Sequence[Sequence[int]], tokens: int) -> float:
    """Seconds that so many greedy tokens after each prompt take."""
    options = GenerationOptions(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    began = time.perf_counter()
    found = engine.generate(list(every), options)
    took = time.perf_counter() - began
    if any(len(one.tokens) != tokens for one in found):
        raise ValueError("a request ended early")
    return took


def steps(model: Model, draw: random.Random, passes: int) -> Iterator[Figure]:
    """Milliseconds a step, by lanes."""
    bars = bars_of(model.name)
    floor = model.weights_nbytes() / COPY_TB_S / 1e9
    with model.worker() as worker:
        for lanes in LANES:
            if lanes > worker.ready.request_slots:
                continue
            samples = []
            for _ in range(passes + 1):
                every = worker.run(prompts(draw, lanes, PROMPT_TOKENS), STEP_TOKENS)
                spans = [(one.last_ns - one.first_ns) / 1e6 for one in every]
                samples.append(median(spans) / (STEP_TOKENS - 1))
            bar = None if bars is None else bars.steps[lanes]
            row = f"step, {lanes} lanes, ms"
            yield Figure(model.name, row, tuple(samples[1:]), bar, floor)


def host(model: Model, passes: int) -> Iterator[Figure]:
    """What the host takes between rounds, by lanes, without tracing (`critical_path.py`)."""
    for frames in (2, 1):
        with closing(model.runtime()) as runtime:
            lanes = [count for count in LANES if count <= runtime.geometry.request_slots]
            found = measure(runtime, lanes, frames, passes, steps=False)
        for count, figures in found.items():
            for name, us in figures.items():
                row = f"{name}, {count} lanes, {frames} in flight, us"
                yield Figure(model.name, row, (us,))


def prefill(model: Model, engine: Engine, draw: random.Random, passes: int) -> Iterator[Figure]:
    """Milliseconds of a first token, by the prompt's tokens."""
    bars = bars_of(model.name)
    for tokens in PROMPTS:
        if tokens >= engine.info.max_context_tokens:
            continue
        generated(engine, prompts(draw, 1, tokens), 1)
        count = max(passes, PREFILL_PASSES)
        samples = [generated(engine, prompts(draw, 1, tokens), 1) * 1e3 for _ in range(count)]
        bar = None if bars is None else bars.prefill[tokens]
        yield Figure(model.name, f"prefill, {tokens} tokens, ms", tuple(samples), bar)


def served(
    model: Model, parts: Sequence[str], draw: random.Random, passes: int
) -> Iterator[Figure]:
    """Start and HTTP, each pass with a server of its own."""
    starts, gaps, rates = [], [], []
    phases: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(passes):
            server = RunningServer(model.server(), Path(folder) / "log")
            try:
                starts.append(server.ready_s)
                for name, ms in json.loads(server.said_ready)["startup_ms"].items():
                    phases.setdefault(name, []).append(ms)
                if "http" in parts:
                    server.wave(draw, 1, PROMPT_TOKENS, 8)
                    alone = server.wave(draw, 1, PROMPT_TOKENS, HTTP_TOKENS)
                    gaps.append(1e3 / alone.exchanges[0].decode_rate)
                    many = server.wave(draw, HTTP_CLIENTS, PROMPT_TOKENS, STEP_TOKENS)
                    rates.append(many.output_rate)
            finally:
                server.close()
    bars = bars_of(model.name)
    if "start" in parts:
        bar = None if bars is None else bars.start_s
        yield Figure(model.name, "start to ready, s", tuple(starts), bar)
        for name, samples in phases.items():
            yield Figure(model.name, f"of the start: {name}, ms", tuple(samples))
    if gaps:
        small = "0.6b" in model.name.lower()
        yield Figure(
            model.name, "HTTP, 1 client, ms a token", tuple(gaps), HTTP_GAP_MS if small else None
        )
        yield Figure(
            model.name,
            f"HTTP, {HTTP_CLIENTS} clients, tok/s",
            tuple(rates),
            HTTP_RATE if small else None,
            more_is_better=True,
        )


def figures(model: Model, parts: Sequence[str], passes: int, seed: int) -> Iterator[Figure]:
    """All rows of a model, as they are measured."""
    draw = random.Random(seed)
    if "steps" in parts:
        yield from steps(model, draw, passes)
    if "host" in parts:
        yield from host(model, passes)
    if "prefill" in parts:
        with model.open() as engine:
            yield from prefill(model, engine, draw, passes)
    if "start" in parts or "http" in parts:
        yield from served(model, parts, draw, passes)


def main() -> None:
    """Parses options, measures, prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cores", nargs="+", type=Path, metavar="CORE")
    parser.add_argument("--accept", required=True)
    parser.add_argument("--target", default="cuda:sm_90")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--passes", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="also writes every sample there")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--parts takes some of {', '.join(PARTS)}")
    needs_gpu(options.target)
    every = []
    print("| model | | median (min..max) | of the floor | vLLM | ratio | aim |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for core in options.cores:
        model = Model(core, options.accept, options.target)
        for figure in figures(model, parts, options.passes, options.seed):
            print(figure.line(), flush=True)
            every.append(figure)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(figure) for figure in every], indent=1))


if __name__ == "__main__":
    main()
