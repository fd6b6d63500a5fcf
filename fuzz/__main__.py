"""`python -m fuzz`: drives every target, or the named ones, guided by the coverage of Helios's own
code. `make fuzz SECONDS=600` runs it.

Each target runs in a process of its own with limits on time and memory for one input, so a crash
or a hang of native code is a finding like any other. An input that does it is written to
build/fuzz/. What was learnt stays in build/fuzz/corpus and is where the next run begins;
`--distil` writes the inputs that together reach what all of it reaches into the tests' corpus.
Needs the `fuzz` extra (atheris). Exit status 1 with a finding.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from fuzz import corpus
from fuzz.stored import scratch_of_children
from fuzz.targets import TARGETS
from fuzz.words import dictionary

WORK: Final = Path("build") / "fuzz"
CORPUS: Final = WORK / "corpus"
_INPUT_LIMIT_NBYTES: Final = 64 << 10
_INPUT_LIMIT_S: Final = 20
_MEMORY_LIMIT_MIB: Final = 3072
# Of a target's stored inputs. Above it an input is kept if it takes a branch that no other takes,
# and no longer if it takes one more often than the others.
_STORED_LIMIT_NBYTES: Final = 40 << 10


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all"
    )
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together")
    parser.add_argument("--distil", action="store_true", help="rewrite tests/data/fuzz_corpus")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if options.distil:
        for name in names:
            distil(name)
        return
    found = [name for name in names if not run(name, max(1, options.seconds // len(names)))]
    for name in found:
        print(f"finding in {name}: see {WORK}")
    sys.exit(1 if found else 0)


def run(name: str, seconds: int) -> bool:
    """Fuzzes one target; True if nothing was found."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    _write_seeds(name, folder)
    print(f"--- {name}: {seconds} s", flush=True)
    command = [sys.executable, "-m", "fuzz.one", name, str(folder)]
    limits = [f"-max_total_time={seconds}", f"-timeout={_INPUT_LIMIT_S}"]
    limits += [f"-rss_limit_mb={_MEMORY_LIMIT_MIB}", f"-max_len={_INPUT_LIMIT_NBYTES}"]
    quiet = ["-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={WORK}/{name}-"]
    if TARGETS[name].words:
        words = WORK / f"{name}.dict"
        words.write_text(dictionary(TARGETS[name].words))
        limits.append(f"-dict={words}")
    return _start([*command, *limits, *quiet]) == 0


def distil(name: str) -> None:
    """Stores few inputs with the coverage of all that are known, and of both outcomes."""
    source = CORPUS / name
    source.mkdir(parents=True, exist_ok=True)
    _write_seeds(name, source)
    inputs = _merged(name, source, [])
    if len(corpus.pack(inputs)) > _STORED_LIMIT_NBYTES:
        inputs = _merged(name, source, ["-use_counters=0"])
    # An accepted input may reach nothing that a refused one doesn't.
    known = sorted((path.read_bytes() for path in source.iterdir()), key=len)
    for outcome in (True, False):
        if not any(TARGETS[name].accepts(data) is outcome for data in inputs):
            inputs += [data for data in known if TARGETS[name].accepts(data) is outcome][:1]
    corpus.write(name, inputs)


def _merged(name: str, source: Path, options: list[str]) -> list[bytes]:
    """Of a folder's inputs those that are needed to reach what all of them reach."""
    kept = WORK / "distilled" / name
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    command = [sys.executable, "-m", "fuzz.one", name, "-set_cover_merge=1", *options]
    limit = f"-max_len={_INPUT_LIMIT_NBYTES}"
    status = _start([*command, limit, str(kept), str(source)])
    if status != 0:
        sys.exit(f"merging the inputs of {name} ended with status {status}")
    return [path.read_bytes() for path in kept.iterdir()]


def _start(command: list[str]) -> int:
    """The exit status of a command, which leaves no folder behind."""
    with scratch_of_children() as environment:
        return subprocess.run(command, env=environment, check=False).returncode


def _write_seeds(name: str, folder: Path) -> None:
    for seed in [*TARGETS[name].seeds(), *corpus.read(name)]:
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    main()
