"""Decode and prefill rates of a core in process, beside llama.cpp on the same weights.

    python benchmarks/throughput.py CORE --accept NAMESPACE [--lanes 1,8,32] [--prompts 512]
        [--before CORE] [--gguf FILE --llama-cpp PYTHON]

PYTHON is the interpreter of an environment with the `xllamacpp` package, the core of `--before`
holds the same model as it was prepared before. Passes take turns, so that all see the same machine;
medians with min..max, ratios (of two cores the median of each pass's), and the per cent of the
floor that reading the weights once a step sets, at the memory bandwidth measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from helios.core import open_core
from helios.runtime.device import DeviceOptions
from helios.runtime.geometry import Operation, ProgramInfo
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import LaneAdmission, LaneWork, Round, SamplingParameters
from kernels import measure_ceilings

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 128
WAIT_MS = 60_000


class Lanes:
    """Drives a runtime with equal greedy lanes, two rounds in flight."""

    def __init__(self, runtime: ModelRuntime) -> None:
        self._runtime = runtime
        self._generation = 0
        self._in_flight: list[int] = []
        self._pages = 0

    def prefill(self, lanes: int, tokens: int) -> float:
        """Starts `lanes` requests; returns prompt tokens a second."""
        self._drain()
        self._generation += 1
        geometry = self._runtime.geometry
        longest = -(-geometry.max_context_tokens // geometry.page_tokens)
        self._pages = min(longest, geometry.cache_pages // lanes)
        admission = LaneAdmission(SamplingParameters(temperature=0.0), 1 << 20, 0, ())
        self._submit(
            Operation.INITIALIZE, lanes, [self._lane(i, 0, (), admission) for i in range(lanes)]
        )
        self._drain()
        began = time.perf_counter()
        for lane in range(lanes):
            chunk = self._runtime.geometry.of(Operation.PREFILL)[-1].packed_token_capacity
            for start in range(0, tokens, chunk):
                prompt = range(100 + start, 100 + min(tokens, start + chunk))
                work = self._lane(lane, start, prompt)._replace(sample=start + chunk >= tokens)
                self._submit(Operation.PREFILL, len(prompt), [work])
        self._drain()
        return lanes * tokens / (time.perf_counter() - began)

    def decode(self, lanes: int, first: int, tokens: int) -> float:
        """Goes on from position `first`; returns output tokens a second, all lanes together."""
        began = time.perf_counter()
        for step in range(tokens):
            self._submit(
                Operation.DECODE, lanes, [self._lane(i, first + step, ()) for i in range(lanes)]
            )
        self._drain()
        return lanes * tokens / (time.perf_counter() - began)

    def _lane(
        self, slot: int, start: int, prompt: Sequence[int], admission: LaneAdmission | None = None
    ) -> LaneWork:
        return LaneWork(
            slot, self._generation, start, prompt, admission is None,
            range(slot * self._pages, (slot + 1) * self._pages), admission,
        )  # fmt: skip

    def _submit(self, operation: Operation, rows: int, lanes: Sequence[LaneWork]) -> None:
        while not self._runtime.can_submit():
            self._retire()
        program = _smallest(self._runtime, operation, rows)
        self._in_flight.append(self._runtime.submit(Round(program.index, tuple(lanes))))

    def _drain(self) -> None:
        while self._in_flight:
            self._retire()

    def _retire(self) -> None:
        sequence = self._in_flight.pop(0)
        self._runtime.wait(sequence, WAIT_MS)
        self._runtime.read(sequence)


def _smallest(runtime: ModelRuntime, operation: Operation, rows: int) -> ProgramInfo:
    return next(
        program
        for program in runtime.geometry.of(operation)
        if max(program.packed_token_capacity, program.batch_capacity) >= rows
    )


class Peer:
    """llama.cpp in a process of its own."""

    def __init__(self, python: str, gguf: str, threads: int) -> None:
        script = Path(__file__).with_name("peers") / "llama_cpp.py"
        self._process = subprocess.Popen(
            [python, script, gguf, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        while self._line() != "ready":
            pass

    def rates(self, prompt_tokens: int, output_tokens: int) -> dict[str, float]:
        """Its own measurement of one request."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{prompt_tokens} {output_tokens}\n")
        self._process.stdin.flush()
        while not (line := self._line()).startswith("{"):
            pass
        rates: dict[str, float] = json.loads(line)
        return rates

    def close(self) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("llama.cpp ended early; does its environment have xllamacpp?")
        return line.strip()


def main() -> None:
    """Parses arguments, runs the passes, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("core")
    parser.add_argument("--accept", required=True)
    parser.add_argument("--lanes", default="1,8,32", help="default: %(default)s")
    parser.add_argument("--prompts", default="512", help="tokens; default: %(default)s")
    parser.add_argument("--before", metavar="CORE", help="another core of the same model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--gguf", help="the same weights, for llama.cpp")
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="interpreter with xllamacpp")
    arguments = parser.parse_args()
    lane_counts = [int(count) for count in arguments.lanes.split(",") if count]
    prompts = [int(tokens) for tokens in arguments.prompts.split(",") if tokens]

    folders = {"helios": arguments.core}
    if arguments.before:
        folders["before"] = arguments.before
    runtimes = {
        name: ModelRuntime.load(
            open_core(folder, accept=arguments.accept, allow_unknown_publisher=True),
            options=DeviceOptions(threads=arguments.threads),
        )
        for name, folder in folders.items()
    }
    runtime = runtimes["helios"]
    drivers = {name: Lanes(one) for name, one in runtimes.items()}
    peer = (
        Peer(arguments.llama_cpp, arguments.gguf, arguments.threads)
        if arguments.llama_cpp and arguments.gguf
        else None
    )
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    bandwidth = [measure_ceilings(arguments.threads).memory]
    for _ in range(arguments.passes):
        for tokens in prompts:
            row = f"prefill {tokens}"
            for name, driver in drivers.items():
                samples[name, row].append(driver.prefill(1, tokens))
            if peer is not None:
                samples["llama.cpp", row].append(peer.rates(tokens, 1)["prefill"])
        for lanes in lane_counts:
            for name, driver in drivers.items():
                driver.prefill(lanes, PROMPT_TOKENS)
                rate = driver.decode(lanes, PROMPT_TOKENS, OUTPUT_TOKENS)
                samples[name, f"decode, {lanes} lanes"].append(rate)
        if peer is not None:
            rate = peer.rates(PROMPT_TOKENS, OUTPUT_TOKENS)["decode"]
            samples["llama.cpp", "decode, 1 lanes"].append(rate)

    bandwidth.append(measure_ceilings(arguments.threads).memory)
    weight_nbytes = runtime.memory["weight"]
    floor = median(bandwidth) / weight_nbytes
    print(f"{runtime.geometry.kernel_path}, {arguments.threads} threads, {arguments.passes} passes")
    print(
        f"memory {median(bandwidth) / 1e9:.1f} GB/s, weights {weight_nbytes / 1e6:.1f} MB: "
        f"at most {floor:.0f} steps/s"
    )
    for (engine, row), rates in samples.items():
        middle, least, most = median(rates), min(rates), max(rates)
        text = f"{engine:10} {row:18} {middle:8.1f} tok/s ({least:.0f}..{most:.0f})"
        if row.startswith("decode"):
            lanes = int(row.split()[1])
            text += f"  {100 * middle / lanes / floor:3.0f} % of the floor"
        if engine == "before":
            ratios = [a / b for a, b in zip(samples["helios", row], rates, strict=True)]
            text += f"  helios is {median(ratios):.3f}x"
        elif engine != "helios":
            text += f"  helios is {median(samples['helios', row]) / middle:.2f}x"
        print(text)
    if peer is not None:
        peer.close()
    for one in runtimes.values():
        one.close()


if __name__ == "__main__":
    main()
