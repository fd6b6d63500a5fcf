"""Runs a bundle's trials on a GPU and says which fail.

    python -m tests.gpu.run_cases BUNDLE [--out FOLDER] [--only WORD ...] [--processes 6]

Needs the driver, numpy, protobuf and cuda-bindings. Trials are shared out among processes, because
numpy takes most of the time. Where one loses its GPU's context the trial that did it has failed,
and a fresh process goes on after it; whoever looks on (compute-sanitizer) sees more with `--tight
--processes 1 --round-limit 600`. Ends with a table and a status other than 0 where anything
failed; FOLDER/results.json has everything.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from helios.runtime.device import DeviceOptions
from tests.gpu.choosing import chosen
from tests.gpu.every_trial import EVERY_TRIAL
from tests.gpu.executing import Executor, execute_all
from tests.gpu.tight import TightExecutor

_MODULE: Final = "tests.gpu.run_cases"
_PROCESSES: Final = 6
# A process may fail before its first trial; then nothing is gained by another one.
_ATTEMPTS_WITHOUT_PROGRESS: Final = 2


@dataclass
class Outcome:
    """What came of one process after the other over a share of the trials."""

    trials: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    processes: int = 0


def run_share(
    bundle: Path, names: Sequence[str], folder: Path, share: int, options: argparse.Namespace
) -> Outcome:
    """Runs trials in a process, and what is left after one that failed in another."""
    outcome = Outcome()
    left, idle = list(names), 0
    while left and idle < _ATTEMPTS_WITHOUT_PROGRESS:
        outcome.processes += 1
        stem = folder / f"share-{share}-{outcome.processes}"
        listing, results = stem.with_suffix(".txt"), stem.with_suffix(".jsonl")
        listing.write_text("\n".join(left))
        command = [sys.executable, "-m", options.module, str(bundle)]
        command += ["--listed", str(listing), "--results", str(results)]
        command += ["--ordinal", str(options.ordinal), "--round-limit", str(options.round_limit)]
        command += [flag for flag in ("--dry", "--tight") if getattr(options, flag[2:])]
        # Several processes with all cores each would wait for one another.
        threads = str(max(1, (os.cpu_count() or 1) // options.processes))
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        with stem.with_suffix(".log").open("w") as log:
            status = subprocess.run(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
            ).returncode
        done = _read(results)
        outcome.trials += done
        finished = {one["trial"] for one in done}
        left = [name for name in left if name not in finished]
        if status != 0:
            said = stem.with_suffix(".log").read_text().strip().splitlines()
            outcome.troubles.append(f"a process ended with {status}: {' | '.join(said[-3:])}")
        idle = 0 if done else idle + 1
    outcome.trials += [
        {"trial": name, "wrong": ["wasn't run: no process got this far"], "seconds": 0.0}
        for name in left
    ]
    return outcome


def _read(results: Path) -> list[dict[str, Any]]:
    """The trials that ended, and the one that didn't where the process ended in the midst of it."""
    if not results.exists():
        return []
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    done = [line for line in lines if "trial" in line]
    begun = [line["begins"] for line in lines if "begins" in line]
    if begun and begun[-1] not in {line["trial"] for line in done}:
        done.append({"trial": begun[-1], "wrong": ["ended its process"], "seconds": 0.0})
    return done


def main(module: str = _MODULE, make_executor: Callable[..., Executor] = Executor) -> int:
    """The command line, which `module` is started with for a share of the trials."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, help="where results.json goes")
    parser.add_argument("--only", nargs="+", default=[], help="beginnings of trials' names")
    parser.add_argument("--processes", type=int, default=_PROCESSES)
    parser.add_argument("--ordinal", type=int, default=0, help="which GPU")
    parser.add_argument("--round-limit", type=float, default=30.0, help="seconds that a run has")
    parser.add_argument("--dry", action="store_true", help="run all, look at nothing")
    parser.add_argument("--tight", action="store_true", help="memory by array, for memcheck")
    parser.add_argument("--listed", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    parser.set_defaults(module=module)
    options = parser.parse_args()
    if options.listed is not None:
        names = options.listed.read_text().splitlines()
        device = DeviceOptions(ordinal=options.ordinal, round_limit_s=options.round_limit)
        status = execute_all(
            options.bundle, names, options.results, device, dry=options.dry,
            make_executor=TightExecutor if options.tight else make_executor,
        )  # fmt: skip
        sys.stdout.flush()
        os._exit(status)  # a lost context may keep the driver's own end waiting
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        names = chosen(EVERY_TRIAL, options.only)
        shares = [names[n :: options.processes] for n in range(options.processes)]
        with ThreadPoolExecutor(options.processes) as pool:
            outcomes = list(
                pool.map(
                    lambda n: run_share(options.bundle, shares[n], folder, n, options),
                    range(options.processes),
                )
            )
        trials = sorted((one for o in outcomes for one in o.trials), key=lambda one: one["trial"])
        troubles = [said for outcome in outcomes for said in outcome.troubles]
        report = {"trials": trials, "troubles": troubles}
        (folder / "results.json").write_text(json.dumps(report, indent=1))
    return show(trials, troubles, time.perf_counter() - began)


def show(trials: Sequence[dict[str, Any]], troubles: Sequence[str], seconds: float) -> int:
    """Prints what failed, then the table; returns the exit status."""
    for one in trials:
        for said in one["wrong"][:4]:
            print(f"FAILED {one['trial']}: {said}")
    for said in troubles:
        print(f"TROUBLE {said}")
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in trials:
        kinds.setdefault(one["trial"].split()[0], []).append(one)
    print(f"{'kind':<24}{'trials':>8}{'failed':>8}{'seconds':>9}")
    for kind, found in sorted(kinds.items()):
        bad = sum(bool(one["wrong"]) for one in found)
        took = sum(one["seconds"] for one in found)
        print(f"{kind:<24}{len(found):>8}{bad:>8}{took:>9.1f}")
    failed = sum(bool(one["wrong"]) for one in trials)
    print(f"{'all':<24}{len(trials):>8}{failed:>8}{seconds:>9.1f}")
    return int(bool(failed or troubles))


if __name__ == "__main__":
    sys.exit(main())
