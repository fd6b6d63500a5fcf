"""The host's critical path: from seeing a round complete to having launched the next one.

    python benchmarks/critical_path.py [CORE --accept NAMESPACE --target cuda:sm_90]
        [--before OTHER_CHECKOUT] [--lanes 1 8 32 128] [--passes 3] [--processes 1] [--steps]
        [--waiting spins sleeps]

Without a core: of a tiny one, on the cuda device over the stand-in driver (tests/standin_driver),
whose launch costs next to nothing; the answers are scripted. With one: as it is, on a GPU. Greedy
requests go through the worker's loop and a socket, as in a server's worker, on the process's only
thread. Nothing traces: two moments are noted a round, and what that costs is printed. With one
round in flight the path is all that the device waits for; with two it says how long a step the host
could follow. On a GPU `idle` is what the device itself stamped between two rounds, and `lag` how
long after its end a round was seen to have ended.

`waiting` is whether looks at a round's word come without a pause around its expected end, as on a
machine of four processors and more. `--steps` adds a pass in which each step of the loop is timed,
and what that timing costs.
`--before` runs another checkout's sources in turn, for comparison in one run. A process's figures
depend on the processors that it gets, so `--processes` runs several of each checkout, in turn, and
the table has their range beside their median. µs: of passes the median, of each pass the median and
the 95th percentile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from prerequisites import needs_extra, needs_gpu, needs_program

ROOT = Path(__file__).parents[1]


def noting_us() -> float:
    """What noting the two moments of a round adds to the path."""
    found: dict[int, int] = {}
    spans = []
    for number in range(20_000):
        began = time.perf_counter_ns()
        found[number] = time.monotonic_ns()
        found[number] = 1 if number else 0
        spans.append((time.perf_counter_ns() - began) / 1e3)
    return median(spans)


def child(arguments: argparse.Namespace) -> None:
    """Measures with this process's sources; prints JSON."""
    from gpu_parts.critical import measure
    from helios.core import open_core
    from helios.thread_turns import shorten_turns

    core = open_core(arguments.core, accept=arguments.accept, allow_unknown_publisher=True)
    shorten_turns(of_gpu=True)
    results: dict[str, dict[str, float]] = {"noting": {"us": noting_us()}}
    passes = [(frames, False, waits) for frames in (1, 2) for waits in arguments.waiting]
    passes += [(1, True, arguments.waiting[0])] * arguments.steps
    for frames, steps, waits in passes:
        runtime = load(core, arguments.target, arguments.round_us * 1000, standin=arguments.standin)
        try:
            runtime._device._watch.spins = waits == "spins"
            slots = runtime.geometry.request_slots
            lanes = [count for count in arguments.lanes if count <= slots]
            found = measure(runtime, lanes, frames, arguments.passes, steps=steps)
        finally:
            runtime.close()
        for count, figures in found.items():
            results[f"{count} {'steps' if steps else f'{frames} {waits}'}"] = figures
    print(json.dumps(results))


def load(
    core: Any, target: str, round_ns: int, *, standin: bool, cache_nbytes: int = 1 << 26
) -> Any:
    """A runtime of the core: on the machine's device, or over the stand-in driver."""
    from helios.runtime.model_runtime import Capacities, ModelRuntime
    from helios.runtime.targets import deployed_rank, read_manifest, read_modules

    if not standin:
        return ModelRuntime.load(core, target=target, verify_weights=False)
    from gpu_parts.scripted_cuda import ScriptedCudaDevice

    rank = deployed_rank(core, target)
    manifest = read_manifest(core, rank)
    device = ScriptedCudaDevice(core.contract, manifest, read_modules(core, rank), round_ns)
    weights = {name: core.map_weights(name, verify=False).content for name in rank.weight_resources}
    asked = Capacities(cache_nbytes=cache_nbytes)
    return ModelRuntime(core.contract, manifest, weights, device, asked)


def standin_core(folder: Path) -> Path:
    """A tiny core of a cuda target, for the stand-in driver."""
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from tests.standin_driver.cuda_core import write_cuda_core

    from host import tiny_core

    key = Ed25519PrivateKey.generate()
    return write_cuda_core(tiny_core(folder), folder / "cuda", key)


def run(tree: Path, arguments: argparse.Namespace, core: Path, *, standin: bool) -> dict[str, Any]:
    """One child with a checkout's sources."""
    environment = dict(os.environ)
    python = [str(tree / "src"), str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(python)
    environment["OPENBLAS_NUM_THREADS"] = "1"  # as the worker's
    command = [sys.executable, __file__, str(core), "--accept", arguments.accept, "--child"]
    command += ["--target", arguments.target, "--passes", str(arguments.passes), "--lanes"]
    command += [*map(str, arguments.lanes), "--round-us", str(arguments.round_us)]
    command += ["--waiting", *arguments.waiting]
    if arguments.steps:
        command.append("--steps")
    if standin:
        from tests.standin_driver.building import standin_folder

        paths = [str(standin_folder()), *filter(None, [environment.get("LD_LIBRARY_PATH")])]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        command.append("--standin")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def with_range(values: list[float]) -> str:
    """The median, and where there are several processes the least and the most of them."""
    middle = f"{median(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f}..{max(values):.1f})"


def report(found: dict[str, list[dict[str, Any]]], *, on_gpu: bool) -> None:
    """Prints the table, and the steps where they were timed."""

    def each(tree: str, key: str, name: str) -> list[float]:
        return [one[key][name] for one in found[tree] if key in one]

    def figure(tree: str, key: str, name: str) -> float:
        return median(each(tree, key, name))

    noting = median(one["noting"]["us"] for runs in found.values() for one in runs)
    print(f"noting both moments of a round: {noting:.2f} us of these figures")
    columns = ("host", "host p95", *(("idle", "lag", "device") if on_gpu else ()))
    print("| sources | lanes | in flight | waiting | " + " | ".join(columns) + " |")
    print("| --- " * (4 + len(columns)) + "|")
    for key in found["this"][0]:
        count, *rest = key.split()
        if len(rest) != 2:
            continue
        for tree in found:
            cells = [with_range(each(tree, key, name)) for name in columns]
            print(f"| {tree} | {count} | {' | '.join(rest)} | " + " | ".join(cells) + " |")
    for key in found["this"][0]:
        count, *rest = key.split()
        if rest != ["steps"]:
            continue
        for tree, runs in found.items():
            alone = next(other for other in runs[0] if other.startswith(f"{count} 1 "))
            cost = figure(tree, key, "host") - figure(tree, alone, "host")
            print(f"\n{tree}, {count} lanes, one in flight, us a step (timing adds {cost:.1f}):")
            for name in runs[0][key]:
                if name.startswith("step: "):
                    print(f"  {name.removeprefix('step: '):24} {figure(tree, key, name):8.2f}")


def main() -> None:
    """Runs the children in turn and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("core", nargs="?", type=Path)
    parser.add_argument("--accept", default="host")
    parser.add_argument("--target", default="cuda:sm_90")
    parser.add_argument("--before", type=Path, help="another checkout, run in turn")
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--round-us", type=int, default=500, help="a round over the stand-in")
    parser.add_argument("--processes", type=int, default=1, help="of each checkout, in turn")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument(
        "--waiting",
        nargs="+",
        choices=("spins", "sleeps"),
        default=["spins", "sleeps"],
        help="how the end of a round is waited for (default: both in turn)",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--standin", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    if arguments.core is None:
        needs_extra("test", "cuda.bindings", "cryptography", "pytest")
        needs_program("cc", "install a C compiler, as with apt-get install gcc")
    else:
        needs_gpu(arguments.target)
    trees = {"this": ROOT} | ({"before": arguments.before} if arguments.before else {})
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory() as folder:
        standin = arguments.core is None
        core = standin_core(Path(folder)) if standin else arguments.core
        for _ in range(arguments.processes):
            for name, tree in trees.items():
                found[name].append(run(tree, arguments, core, standin=standin))
    report(found, on_gpu=not standin)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
