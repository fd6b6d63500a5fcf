"""What the host's half of the cuda device costs, and whether its transport is sound.

Two commands, for two machines:

    python benchmarks/gpu_host.py compile FOLDER
        compiles the kernels into FOLDER; needs the extra `cuda-prepare` (Triton) and no GPU
    python benchmarks/gpu_host.py run FOLDER [--out RESULTS.json] [--weights-gib 4]
        needs a GPU, cuda-bindings and numpy

`run` loads programs of a model's size whose kernels only count, and measures: loading, a graph's
cost by node, the upload of weights, a submission, a round trip, the interval of two frames in
flight. Checked on the way: every node ran in its turn, no record was torn, rounds took no memory,
and an illegal address and a kernel that never ends become errors, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from prerequisites import needs_extra, needs_gpu

_ROOT = Path(__file__).parent
sys.path[:0] = [str(_ROOT), str(_ROOT.parent / "src")]


def main() -> int:
    """Runs one of the commands; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    compiling = commands.add_parser("compile")
    compiling.add_argument("folder", type=Path)
    compiling.add_argument("--architecture", default="sm_90")
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--out", type=Path)
    running.add_argument("--weights-gib", type=float, default=4.0)
    running.add_argument("--rounds", type=int, default=20_000)
    failing = commands.add_parser("fail", help="used by run")
    failing.add_argument("folder", type=Path)
    failing.add_argument("how", choices=("fault", "hang"))
    options = parser.parse_args()
    if options.command == "compile":
        needs_extra("cuda-prepare", "triton")
        from gpu_parts.host_programs import save_modules

        save_modules(options.folder, options.architecture)
        return 0
    needs_gpu()
    from gpu_parts.host_rounds import fail, measure

    if options.command == "fail":
        return fail(options.folder, options.how)
    results = measure(options.folder, options.weights_gib, options.rounds)
    for how in ("fault", "hang"):
        command = [sys.executable, __file__, "fail", str(options.folder), how]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            results[f"failure: {how}"] = (done.stdout + done.stderr).strip()[-400:]
        except subprocess.TimeoutExpired:
            results[f"failure: {how}"] = "WRONG: the process didn't end"
    for name, value in results.items():
        print(f"{name}: {value}")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))
    return int(any("WRONG" in str(value) for value in results.values()))


if __name__ == "__main__":
    sys.exit(main())
