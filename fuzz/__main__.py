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

from fuzz.targets import TARGETS

WORK: Final = Path("build") / "fuzz"
CORPUS: Final = WORK / "corpus"
STORED_CORPUS: Final = Path("tests") / "data" / "fuzz_corpus"
_INPUT_LIMIT_NBYTES: Final = 64 << 10
_INPUT_LIMIT_S: Final = 20
_MEMORY_LIMIT_MIB: Final = 3072


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
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    _write_seeds(name, corpus)
    print(f"--- {name}: {seconds} s", flush=True)
    command = [sys.executable, "-m", "fuzz.one", name, str(corpus)]
    limits = [f"-max_total_time={seconds}", f"-timeout={_INPUT_LIMIT_S}"]
    limits += [f"-rss_limit_mb={_MEMORY_LIMIT_MIB}", f"-max_len={_INPUT_LIMIT_NBYTES}"]
    quiet = ["-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={WORK}/{name}-"]
    return subprocess.run([*command, *limits, *quiet], check=False).returncode == 0


def distil(name: str) -> None:
    """Keeps the smallest set of inputs with the coverage of all that are known."""
    source = CORPUS / name
    source.mkdir(parents=True, exist_ok=True)
    _write_seeds(name, source)
    target = STORED_CORPUS / name
    scratch = WORK / "distilled" / name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", "fuzz.one", name, "-merge=1", str(scratch), str(source)]
    subprocess.run([*command, f"-max_len={_INPUT_LIMIT_NBYTES}"], check=True)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(scratch.iterdir()):
        content = path.read_bytes()
        (target / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)


def _write_seeds(name: str, folder: Path) -> None:
    stored = STORED_CORPUS / name
    seeds = TARGETS[name].seeds()
    seeds += [path.read_bytes() for path in sorted(stored.iterdir())] if stored.is_dir() else []
    for seed in seeds:
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    main()
