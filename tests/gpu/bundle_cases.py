"""Compiles every trial for a GPU machine that has no compiler.

    nice python -m tests.gpu.bundle_cases FOLDER [--only WORD ...] [--count]

Then `python -m tests.gpu.run_cases FOLDER` there. What was compiled once is read from Triton's
cache.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from tests.gpu.bundling import Bundle
from tests.gpu.choosing import chosen
from tests.gpu.every_trial import EVERY_TRIAL
from tests.gpu.names import MANIFEST, MODULES


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="words of trials' names")
    parser.add_argument("--count", action="store_true", help="count kernels, compile nothing")
    options = parser.parse_args()
    began = time.perf_counter()
    bundle = Bundle()
    for name in chosen(EVERY_TRIAL, options.only):
        bundle.add(name)
    programs = len(bundle.recorder.programs)
    print(f"{programs} programs, {len(bundle.requests)} kernels", flush=True)
    if bundle.missing and not options.only:
        raise SystemExit(f"no trial has: {', '.join(bundle.missing)}")
    if options.count:
        names = Counter(request.function.__name__ for request in bundle.requests.values())
        print(*(f"{count:4} {name}" for name, count in names.most_common()), sep="\n")
        return 0

    def advance(done: int) -> None:
        if done % 10 == 0:
            print(f"{done} compiled, {time.perf_counter() - began:.0f} s", flush=True)

    bundle.write(options.folder, advance)
    files = [options.folder / MANIFEST, *(options.folder / MODULES).iterdir()]
    nbytes = sum(path.stat().st_size for path in files)
    seconds = time.perf_counter() - began
    print(f"{nbytes / 1e6:.1f} MB in {len(files)} files, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
