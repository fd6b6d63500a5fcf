"""The roofline of a step of SmolLM2-135M, term by term: what each part takes, and its floor.

    python benchmarks/roofline.py [--threads 2] [--instruction-set avx512] [--passes 15]

A term is what the step gets shorter by when the term's launches are left out, so weights come from
where they come from while a model runs; medians over passes in which the whole step and every
shorter one take turns. The floor is the larger of bytes over the bandwidth and operations over the
rate, both measured by the same process before the passes. Two int8 planes count as two products.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from helios import _native
from helios.kernels.catalogue import ActivationFormat
from kernels import Ceilings, launch_cost, measure_ceilings
from native_launches import STORAGES, Bench, Launch, Storage, model_step

# (lanes, tokens a lane, context): decode at three widths, one prompt.
STEPS = ((1, 1, 128), (8, 1, 128), (32, 1, 128), (1, 512, 512))
LINEAR_TERMS = {(576, 960): "q, k, v", (576, 576): "o", (1536, 576): "down", (576, 49152): "head"}
TERMS = {
    "linear_silu_mul": "gate and up",
    "rms_norm": "norms",
    "rope_and_cache": "rope, cache",
    "rope_and_cache_bf16": "rope, cache",
    "attention_bf16": "attention",
}


@dataclass(frozen=True)
class Floor:
    """Least seconds of a term, and what sets them."""

    seconds: float
    bound: str


def term_of(launch: Launch) -> str:
    """The name of the step's part that a launch belongs to."""
    if launch.kernel == "linear":
        return LINEAR_TERMS[launch.integers["width"], launch.integers["outputs"]]
    return TERMS.get(launch.kernel, launch.kernel)


def floor_of(launches: list[Launch], ceilings: Ceilings) -> Floor:
    """The larger of a term's two least times."""
    bytes_s = operations_s = 0.0
    kind = "float"
    for launch in launches:
        nbytes, operations, kind = launch_cost(launch)
        planes = 2 if launch.integers.get("format") == ActivationFormat.Q16 else 1
        bytes_s += nbytes / ceilings.memory
        operations_s += planes * operations / ceilings.rates[kind]
    return Floor(bytes_s, "memory") if bytes_s >= operations_s else Floor(operations_s, kind)


def report(
    bench: Bench, ceilings: Ceilings, storage: Storage, step: tuple[int, int, int], passes: int
) -> None:
    """Prints a step's table."""
    lanes, tokens, context = step
    launches = model_step(storage, lanes=lanes, tokens=tokens, context=context)
    by_term: dict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        by_term[term_of(launch)].append(launch)
    programs = {"": bench.program(launches)}
    for term in by_term:
        programs[term] = bench.program([one for one in launches if term_of(one) != term])
    for program in programs.values():
        bench.run(program)
    whole: list[float] = []
    shorter: dict[str, list[float]] = defaultdict(list)
    for _ in range(passes):
        for term in by_term:
            full = bench.run(programs[""])
            whole.append(full)
            shorter[term].append(full - bench.run(programs[term]))
    total = median(whole)
    print(
        f"\n{storage.name}: {lanes} lane(s) x {tokens} token(s), context {context}:"
        f" {total * 1e3:.3f} ms ({min(whole) * 1e3:.3f}..{max(whole) * 1e3:.3f}),"
        f" {lanes * tokens / total:.0f} tok/s"
    )
    floors = 0.0
    for term, group in by_term.items():
        floor = floor_of(group, ceilings)
        floors += floor.seconds
        seconds = median(shorter[term])
        print(
            f"| {term} | {seconds * 1e3:.3f} | {100 * seconds / total:.0f} % |"
            f" {floor.seconds * 1e3:.3f} | {floor.bound} |"
            f" {100 * floor.seconds / seconds if seconds > 0 else float('nan'):.0f} % |"
        )
    print(f"| all | {total * 1e3:.3f} | | {floors * 1e3:.3f} | | {100 * floors / total:.0f} % |")
    bench.kept.clear()


def main() -> None:
    """Parses options and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--instruction-set", default=_native.instruction_sets()[0])
    parser.add_argument("--passes", type=int, default=15)
    options = parser.parse_args()
    ceilings = measure_ceilings(options.threads)
    print(
        f"{options.instruction_set}, {options.threads} threads; ceilings:"
        f" {ceilings.memory / 1e9:.0f} GB/s read; "
        + ", ".join(f"{kind} {rate / 1e9:.0f} GOP/s" for kind, rate in ceilings.rates.items())
    )
    bench = Bench(options.threads, options.instruction_set)
    for storage in STORAGES:
        for step in STEPS:
            report(bench, ceilings, storage, step, options.passes)
    bench.replayer.close()


if __name__ == "__main__":
    main()
