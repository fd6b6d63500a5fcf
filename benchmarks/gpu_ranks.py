"""A core on one device and on several that compute the same in step: the same tokens, and the cost.

    python benchmarks/gpu_ranks.py CORE --accept NAMESPACE [--target cuda:sm_90] [--ranks 2]
        [--lanes 1,8,32] [--passes 5]

Writes the core beside itself with its resources listed for each rank (files are linked, not copied)
and signs that with a key of its own. Random prompts are generated from, greedily and by chance, on
one rank and on all; a token that differs ends the command. Then a step as `gpu.py` has it, and what
loading took, of one rank and of all. Needs as many GPUs as ranks; on `cpu` ranks share the cores.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path
from statistics import median

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpu_parts.timed_worker import TimedWorker
from helios.core import format as core_format
from helios.engine import Engine, GenerationOptions
from helios.schema import core_pb2
from ignition.preparation import signing
from ignition.preparation.export import serialized
from prerequisites import needs_gpu

PROMPT_TOKENS = 64
STEP_TOKENS = 256
VOCABULARY = 300  # ids that every core has
COMPARED = (
    GenerationOptions(max_tokens=64, temperature=0.0, ignore_eos=True),
    GenerationOptions(max_tokens=64, temperature=0.9, top_p=0.95, seed=11, ignore_eos=True),
)


def list_ranks(core: Path, destination: Path, ranks: int) -> Path:
    """The core with every target's resources listed for so many ranks, its files linked."""
    (destination / core_format.RESOURCE_FOLDER).mkdir(parents=True)
    for file in (core / core_format.RESOURCE_FOLDER).iterdir():
        os.link(file, destination / core_format.RESOURCE_FOLDER / file.name)
    locations = (core / core_format.LOCATIONS_FILE).read_bytes()
    (destination / core_format.LOCATIONS_FILE).write_bytes(locations)
    envelope = core_pb2.SignedEnvelope.FromString((core / core_format.ENVELOPE_FILE).read_bytes())
    body = core_pb2.CoreBody.FromString(envelope.body)
    for target in body.deployment.targets:
        for _ in range(1, ranks):
            target.ranks.add().CopyFrom(target.ranks[0])
    signed = signing.sign(serialized(body), Ed25519PrivateKey.generate())
    (destination / core_format.ENVELOPE_FILE).write_bytes(serialized(signed))
    return destination


def generated(core: Path, accept: str, target: str) -> list[tuple[int, ...]]:
    """Tokens after prompts of several lengths, all at once."""
    draw = random.Random(1)
    prompts = [[draw.randrange(VOCABULARY) for _ in range(n)] for n in (1, 9, 31, 64, 65, 130)]
    with Engine.open(core, accept=accept, allow_unknown_publisher=True, target=target) as engine:
        return [
            one.tokens for options in COMPARED for one in engine.generate(list(prompts), options)
        ]


def steps(core: Path, accept: str, target: str, lanes: list[int], passes: int) -> dict[str, float]:
    """Medians: milliseconds a step by lanes, and of loading."""
    draw = random.Random(2)
    with TimedWorker(str(core), accept, target) as worker:
        found = {"load": worker.ready.startup_ms["load"]}
        for count in lanes:
            if count > worker.ready.request_slots:
                continue
            samples = []
            for _ in range(passes + 1):
                prompts = [
                    [draw.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)] for _ in range(count)
                ]
                every = worker.run(prompts, STEP_TOKENS)
                spans = [(one.last_ns - one.first_ns) / 1e6 for one in every]
                samples.append(median(spans) / (STEP_TOKENS - 1))
            found[f"step, {count} lanes"] = median(samples[1:])
        return found


def main() -> int:
    """Compares and measures; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("core", type=Path)
    parser.add_argument("--accept", required=True)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--lanes", default="1,8,32")
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    needs_gpu(options.target)
    lanes = [int(count) for count in options.lanes.split(",")]
    with tempfile.TemporaryDirectory(dir=options.core.parent) as folder:
        ranked = list_ranks(options.core, Path(folder) / "core", options.ranks)
        one = generated(options.core, options.accept, options.target)
        all_ranks = generated(ranked, options.accept, options.target)
        if one != all_ranks:
            print(f"WRONG: {options.ranks} ranks give other tokens than one")
            return 1
        print(f"{sum(map(len, one))} tokens of {len(one)} requests are the same")
        alone = steps(options.core, options.accept, options.target, lanes, options.passes)
        in_step = steps(ranked, options.accept, options.target, lanes, options.passes)
    print(f"| ms | one rank | {options.ranks} ranks |\n|---|---|---|")
    for row, ms in alone.items():
        print(f"| {row} | {ms:.4g} | {in_step[row]:.4g} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
