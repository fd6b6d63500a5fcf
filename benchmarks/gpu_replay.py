"""Does a GPU compute what a cuda core says? Every launch of every program beside the reference.

Two commands, for two machines:

    python benchmarks/gpu_replay.py pack CORE FOLDER --accept NAMESPACE
        writes what a runtime is made of, from a core that was prepared for a cuda target
    python benchmarks/gpu_replay.py run FOLDER [--tokens 24] [--out RESULTS.json]
        needs a GPU, cuda-bindings, numpy and protobuf, no more

`run` decodes a few prompts on the GPU and in the numpy reference, then runs all programs in
lockstep: before each launch the reference takes over the GPU's operands, after it both results are
compared. What differs first is named. Rounds of one lane are timed on the way.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from helios import contract as serving_contracts
from helios.errors import HeliosError
from helios.runtime.capacities import least_cache
from helios.runtime.device import DeviceOptions
from helios.runtime.devices.opening import open_device
from helios.runtime.every_program import run_every_program
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.runtime.oracle import greedy_replay
from helios.runtime.reference.differ import LockstepDevice
from helios.schema import contract_pb2, execution_pb2
from prerequisites import needs_gpu

CONTRACT, MANIFEST, MODULES, WEIGHTS = "contract.pb", "manifest.pb", "modules", "weights"
# What one round more or less may do to a log-probability; tokens must be the same where they lead
# by more.
TOLERANCE_NATS = 0.05
_SNAPSHOTS = 3


def pack(core_folder: Path, folder: Path, accept: str) -> int:
    """Writes the parts of a core's cuda target."""
    from helios.core import ResourceKind, open_core
    from helios.runtime.targets import CUDA, choose_target, deployed_rank, read_modules

    core = open_core(core_folder, accept=accept, allow_unknown_publisher=True)
    rank = deployed_rank(core, choose_target(core, CUDA))
    for name in (MODULES, WEIGHTS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    manifest = core.read_resource(rank.manifest_resource, ResourceKind.EXECUTION_MANIFEST)
    (folder / MANIFEST).write_bytes(manifest)
    (folder / CONTRACT).write_bytes(core.deployment.contract.SerializeToString())
    for name, content in read_modules(core, rank).items():
        (folder / MODULES / name).write_bytes(content)
    for name in rank.weight_resources:
        (folder / WEIGHTS / name).write_bytes(core.find_resource(name).read_bytes())
    return 0


class Parts:
    """A folder of `pack`, loaded on a target."""

    def __init__(self, folder: Path) -> None:
        contract = contract_pb2.ServingContract()
        contract.ParseFromString((folder / CONTRACT).read_bytes())
        self.contract = serving_contracts.decode(contract)
        self.message = execution_pb2.ExecutionManifest()
        self.message.ParseFromString((folder / MANIFEST).read_bytes())
        self.manifest = decode_manifest(self.message)
        self.modules = {path.name: path.read_bytes() for path in (folder / MODULES).iterdir()}
        self.weights = {
            path.name: np.memmap(path, np.uint8, "r").data for path in (folder / WEIGHTS).iterdir()
        }

    def open(self) -> Any:
        """The GPU, without memory."""
        manifest = self.manifest
        return open_device(manifest.target, DeviceOptions(), manifest.cuda, self.modules)

    def load(self, target: str, capacities: Capacities, device: Any = None) -> ModelRuntime:
        """A runtime."""
        return ModelRuntime.from_parts(
            self.contract,
            self.message,
            self.weights,
            target=target,
            capacities=capacities,
            device=device,
            modules=self.modules,
        )


def run(folder: Path, tokens: int, out: Path | None) -> int:
    """Compares and times; returns 1 where something differs."""
    parts = Parts(folder)
    results: dict[str, Any] = {}
    least = least_cache(parts.contract, parts.manifest, _SNAPSHOTS)
    began = time.perf_counter()
    runtime = parts.load(parts.manifest.target, Capacities())
    results["load, s"] = round(time.perf_counter() - began, 3)
    results["memory"] = runtime.memory
    try:
        _decode(parts, runtime, least, tokens, results)
    except HeliosError as error:  # the lockstep says more
        results["greedy: error"] = f"WRONG: {error}"
    finally:
        runtime.close()
    differ = LockstepDevice(parts.open())
    lockstep = parts.load(parts.manifest.target, least, differ)
    try:
        run_every_program(lockstep)
    except HeliosError as error:
        results["lockstep: error"] = f"WRONG: {error}"
    finally:
        lockstep.close()
    found = differ.first_difference
    results["lockstep: launches that agree"] = differ.compared
    results["lockstep: first difference"] = "none" if found is None else f"WRONG: {found}"
    for name, value in results.items():
        print(f"{name}: {value}")
    if out is not None:
        out.write_text(json.dumps(results, indent=1, default=str))
    return int(any("WRONG" in str(value) for value in results.values()))


def _decode(
    parts: Parts, runtime: ModelRuntime, least: Capacities, tokens: int, results: dict[str, Any]
) -> None:
    reference = parts.load("reference", least)
    rng = np.random.default_rng(7)
    vocabulary = runtime.geometry.vocabulary_tokens
    differing, largest = [], 0.0
    for length in (1, 7, 65):
        prompt = rng.integers(0, vocabulary, length).tolist()
        got = greedy_replay(runtime, prompt, tokens)
        expected = greedy_replay(reference, prompt, tokens)
        for position, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            if ours.token != theirs.token:
                if theirs.lead > TOLERANCE_NATS:
                    differing.append((length, position, ours, theirs))
                break  # what follows is another text
            largest = max(largest, abs(ours.logprob - theirs.logprob))
    reference.close()
    results["greedy: tokens"] = f"WRONG: {differing[:2]}" if differing else "equal"
    close = largest <= TOLERANCE_NATS
    results["greedy: largest difference, nats"] = largest if close else f"WRONG: {largest}"
    began = time.perf_counter_ns()
    greedy_replay(runtime, prompt, 64)
    wall = (time.perf_counter_ns() - began) / 64 / 1e3
    spans = []
    last = runtime._submitted
    for sequence in range(last - 50, last + 1):
        start, end = runtime.timing(sequence)
        spans.append((end - start) / 1e3)
    results["one lane: on the device, us p50"] = round(float(np.median(spans)), 1)
    results["one lane: a replayed step with its logits read, us"] = round(wall, 1)


def main() -> int:
    """Runs one of the commands; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("core", type=Path)
    packing.add_argument("folder", type=Path)
    packing.add_argument("--accept", required=True)
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--tokens", type=int, default=24)
    running.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.command == "pack":
        return pack(options.core, options.folder, options.accept)
    needs_gpu()
    return run(options.folder, options.tokens, options.out)


if __name__ == "__main__":
    sys.exit(main())
