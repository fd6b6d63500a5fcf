"""What the host does for a prompt's first token, beside the device's rounds.

    python benchmarks/long_prompts.py CORE --accept NAMESPACE [--target cuda:sm_90] [--standin]
        [--before OTHER_CHECKOUT] [--tokens 64 512 2048 8192] [--prompts 9] [--repeats 3]

Greedy requests of one token each, one after the other with pauses between, through the worker's
loop on a thread, as the in-process engine has it. Timed from handing the request over to the token,
and what the device stamped of its rounds until then is taken out. `--standin` serves over the
stand-in driver (tests/standin_driver), which answers at once. `--before` runs another checkout's
sources in turn. Milliseconds: median of the prompts, then of the processes; in brackets those of
the processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from critical_path import load
from prerequisites import needs_extra, needs_gpu, needs_program

ROOT = Path(__file__).parents[1]
PAUSE_S = 0.02
CACHE_NBYTES = 400 << 20  # over the stand-in driver


def child(arguments: argparse.Namespace) -> None:
    """Measures with this process's sources; prints JSON."""
    from helios import collector
    from helios.core import open_core
    from helios.errors import CoreError
    from helios.thread_turns import shorten_turns
    from helios.worker.channel import InProcessChannel
    from helios.worker.messages import FromWorker, Sampling, Shutdown, Submit, TokensEvent
    from helios.worker.model_worker import ModelWorker

    try:
        core = open_core(arguments.core, accept=arguments.accept, allow_unknown_publisher=True)
    except CoreError as error:
        raise SystemExit(f"long_prompts: {error}") from None
    shorten_turns(of_gpu=True)
    runtime = load(core, arguments.target, 0, standin=arguments.standin, cache_nbytes=CACHE_NBYTES)
    told, came_ns = threading.Event(), 0

    def deliver(messages: Sequence[FromWorker]) -> None:
        nonlocal came_ns
        if any(isinstance(message, TokensEvent) for message in messages):
            came_ns = time.perf_counter_ns()
            told.set()

    device_ns: list[int] = []
    read = runtime.read

    def reading(sequence: int) -> Any:
        completion = read(sequence)
        device_ns.append(completion.completed_ns - completion.started_ns)
        return completion

    runtime.read = reading
    channel = InProcessChannel(deliver)
    thread = threading.Thread(target=ModelWorker(runtime, channel).run)
    thread.start()
    collector.settle(collector.YOUNG_OBJECTS)
    draw, host_ms = random.Random(1), {}
    greedy, limit = Sampling(0.0, 0, 1.0, 0.0, 0), runtime.geometry.input_tokens
    for count in arguments.tokens:
        spans = []
        for number in range(arguments.prompts + 1):  # the first one warms up
            prompt = [draw.randrange(limit) for _ in range(count)]
            time.sleep(PAUSE_S)
            told.clear()
            device_ns.clear()
            began = time.perf_counter_ns()
            channel.post([Submit(count * 1000 + number, prompt, 1, greedy, [])])
            told.wait()
            spans.append((came_ns - began - sum(device_ns)) / 1e6)
        host_ms[count] = median(spans[1:])
    channel.post([Shutdown()])
    thread.join()
    runtime.close()
    print(json.dumps(host_ms))


def run(tree: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """One child with a checkout's sources."""
    environment = dict(os.environ)
    python = [str(tree / "src"), str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(python)
    environment["OPENBLAS_NUM_THREADS"] = "1"
    command = [sys.executable, __file__, str(arguments.core), "--accept", arguments.accept]
    command += ["--target", arguments.target, "--prompts", str(arguments.prompts), "--child"]
    command += ["--tokens", *map(str, arguments.tokens)]
    if arguments.standin:
        sys.path[:0] = [str(ROOT), str(ROOT / "src")]
        from tests.standin_driver.building import standin_folder

        paths = [str(standin_folder()), *filter(None, [environment.get("LD_LIBRARY_PATH")])]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
        command.append("--standin")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Runs the children in turn and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("core", type=Path)
    parser.add_argument("--accept", required=True)
    parser.add_argument("--target", default="cuda:sm_90")
    parser.add_argument("--standin", action="store_true")
    parser.add_argument("--before", type=Path, help="another checkout, run in turn")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 512, 2048, 8192])
    parser.add_argument("--prompts", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each checkout")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    if arguments.standin:
        needs_extra("test", "cuda.bindings", "pytest")
        needs_program("cc", "install a C compiler, as with apt-get install gcc")
    else:
        needs_gpu(arguments.target)
    trees = {"this": ROOT} | ({"before": arguments.before} if arguments.before else {})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for _ in range(arguments.repeats):
        for name, tree in trees.items():
            found[name].append(run(tree, arguments))
    print("| host's ms, prompt | " + " | ".join(map(str, arguments.tokens)) + " |")
    print("| --- " * (1 + len(arguments.tokens)) + "|")
    for name, runs in found.items():
        cells = []
        for count in map(str, arguments.tokens):
            every = sorted(one[count] for one in runs)
            cells.append(f"{median(every):.2f} ({', '.join(f'{ms:.2f}' for ms in every)})")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
