"""`python -m tests.mutations`: applies each mutation to a copy of the source and demands that a
marked test of its clause fails, or, of a mutation without a clause, one of its tests.

The tests that failed run once more unmutated at the end: what fails then proved nothing. Each
worker has a copy of src/ in a scratch folder, put before everything else on the import path; the
working tree is never touched. Exit status 1 if a mutation survives or can't be judged, 2 if the
catalogue itself is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.mutations.catalogue import (
    ROOT,
    Mutation,
    check,
    marked_clauses,
    mutated,
    read_mutations,
)

_LIMIT_S: Final = 300.0
_BASELINE_LIMIT_S: Final = 600.0
# Of one test. Only where a mutation is said to make a test wait for ever is it caught by this.
_TEST_LIMIT_S: Final = 60
_PYTEST: Final = (
    *("-q", "--tb=no", "-rf", "--hypothesis-profile", "first-failure"),
    *("-o", f"timeout={_TEST_LIMIT_S}"),
)
_TIMED_OUT: Final = "Failed: Timeout"
# An editable installation answers imports before the path does; this takes it out.
_SITE: Final = '''"""Makes the import path decide where Helios comes from."""

import sys

sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "ScikitBuildRedirectingFinder"]
'''


@dataclass(frozen=True)
class Verdict:
    """`killer` is the marked test that failed; without one, `reason` says what happened."""

    mutation: Mutation
    killer: str
    reason: str
    seconds: float


@dataclass(frozen=True)
class _Outcome:
    """A pytest run: exit status, what it printed, node ids that failed."""

    status: int
    output: str
    failed: list[str]


class Scratch:
    """A copy of the source, in which one mutation at a time is applied."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "src"
        self._folder = folder
        self._clock = int(time.time())
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / "src", self.source, ignore=ignored)
        native = find_spec("helios._native")
        if native is not None and native.origin is not None:
            origin = Path(native.origin)
            (self.source / "helios" / origin.name).symlink_to(origin)
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(_SITE)

    def pytest(self, arguments: Iterable[str], limit_s: float) -> _Outcome:
        """Runs pytest in the repository over this source."""
        path = os.pathsep.join((str(self.source), str(self._folder / "site")))
        environment = os.environ | {
            "PYTHONPATH": path,
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis"),
            "COLUMNS": "10000",
        }
        cache = self._folder / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        options = [*_PYTEST, "-o", f"cache_dir={cache}", *arguments]
        result = subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
        return _Outcome(result.returncode, result.stdout or result.stderr, _last_failed(cache))

    def judge(self, mutation: Mutation) -> Verdict:
        """Applies the mutation, runs its clause's tests, takes it back."""
        path = self.source / mutation.file
        original = path.read_text("utf-8")
        started = time.monotonic()
        self._write(path, mutated(mutation, self.source))
        try:
            marked = ("--clause", mutation.clause) if mutation.clause else ()
            outcome = self.pytest(["-x", *marked, *mutation.tests], _LIMIT_S)
        except subprocess.TimeoutExpired:
            return Verdict(mutation, "", f"no end after {_LIMIT_S:.0f} s", _LIMIT_S)
        finally:
            self._write(path, original)
        return _verdict(mutation, outcome, time.monotonic() - started)

    def _write(self, path: Path, text: str) -> None:
        """Each version has a second of its own, by which compiled files are told apart."""
        path.write_text(text, "utf-8")
        self._clock += 1
        os.utime(path, (self._clock, self._clock))


def _last_failed(cache: Path) -> list[str]:
    """The node ids that pytest's cache lists as failed."""
    path = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(path.read_text("utf-8"))) if path.is_file() else []


def _verdict(mutation: Mutation, outcome: _Outcome, seconds: float) -> Verdict:
    lines = outcome.output.strip().splitlines() or ["no output"]
    for node in outcome.failed:
        # Errors of fixtures are listed too, but only a failed test is a proof.
        said = next((line for line in lines if line.startswith(f"FAILED {node}")), None)
        if said is not None:
            if _TIMED_OUT in said and not mutation.hangs:
                return Verdict(mutation, "", f"{node} took over {_TEST_LIMIT_S} s", seconds)
            return Verdict(mutation, node, "", seconds)
    what = "survived" if outcome.status == 0 else f"no test failed, status {outcome.status}"
    return Verdict(mutation, "", f"{what} ({lines[-1]})", seconds)


def _run(mutations: Sequence[Mutation], jobs: int, folder: Path) -> list[Verdict]:
    free: queue.SimpleQueue[Scratch] = queue.SimpleQueue()
    for number in range(jobs):
        free.put(Scratch(folder / str(number)))

    def judge(mutation: Mutation) -> Verdict:
        scratch = free.get()
        try:
            verdict = scratch.judge(mutation)
        finally:
            free.put(scratch)
        outcome = f"caught by {verdict.killer}" if verdict.killer else verdict.reason.upper()
        print(f"{verdict.seconds:5.1f} s  {mutation.title}\n         {outcome}", flush=True)
        return verdict

    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(judge, mutations))
    return _without_broken_tests(verdicts, free.get(), jobs)


def _without_broken_tests(verdicts: list[Verdict], scratch: Scratch, jobs: int) -> list[Verdict]:
    """Runs the tests that failed unmutated; one that fails again is no proof."""
    killers = sorted({verdict.killer for verdict in verdicts if verdict.killer})
    if not killers:
        return verdicts
    outcome = scratch.pytest([f"-n{jobs}", *killers], _BASELINE_LIMIT_S)
    print(f"unmutated: {(outcome.output.strip().splitlines() or ['no output'])[-1]}", flush=True)
    if outcome.status == 0:
        return verdicts
    broken = set(outcome.failed) or set(killers)
    return [
        replace(verdict, killer="", reason=f"{verdict.killer} fails unmutated too")
        if verdict.killer in broken
        else verdict
        for verdict in verdicts
    ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument(
        "clauses", nargs="*", help="clauses, or areas (files here), to judge; default: all"
    )
    parser.add_argument("--only", default="", help="judge those whose title has this in it")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="mutations at a time")
    parser.add_argument("--check", action="store_true", help="read the catalogue, run nothing")
    options = parser.parse_args()
    mutations, marked = read_mutations(), marked_clauses()
    if options.clauses:
        asked = set(options.clauses)
        mutations = [one for one in mutations if asked & {one.clause, one.area}]
        marked &= {one.clause for one in mutations}
        unknown = asked - {name for one in mutations for name in (one.clause, one.area)}
        if unknown:
            parser.error(f"no mutations: {', '.join(sorted(unknown))}")
    if options.only:
        mutations = [one for one in mutations if options.only in one.title]
        marked &= {one.clause for one in mutations}
    wrong = check(mutations, ROOT / "src", marked)
    if wrong:
        print("\n".join(wrong))
        sys.exit(2)
    if options.check:
        return
    unjudged = [one for one in mutations if one.missing()]
    mutations = [one for one in mutations if not one.missing()]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        verdicts = _run(mutations, options.jobs, Path(folder))
    survivors = [verdict for verdict in verdicts if not verdict.killer]
    clauses = {mutation.clause for mutation in mutations if mutation.clause}
    print(
        f"{len(verdicts) - len(survivors)} of {len(verdicts)} mutations of {len(clauses)} clauses "
        f"caught, {time.monotonic() - started:.0f} s"
    )
    for mutation in unjudged:
        print(f"not judged: {mutation.title}: {', '.join(mutation.missing())} isn't installed")
    for verdict in survivors:
        print(f"not caught: {verdict.mutation.title}: {verdict.reason}")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
