"""Does one accumulation order serve every number of rows on a GPU, and what does it cost?

Two commands, for two machines:

    python benchmarks/gpu_accumulation.py compile FOLDER [--processes 2]
        compiles every measured variant of the projection and attention kernels into FOLDER;
        needs the extra `cuda-prepare` (Triton) and no GPU
    python benchmarks/gpu_accumulation.py run FOLDER [--out RESULTS.json] [--only projections]
        needs a GPU, cuda-bindings and PyTorch (whose cuBLAS and attention are the comparison and
        whose float64 is the reference), not Triton

`run` compares every variant's output, bit for bit, with that of the narrowest tile, over numbers
of rows from 1 to 8,192 and fresh random inputs, then times all of them and the unconstrained
kernels in turn. Tables come last; all figures go to RESULTS.json. docs/cuda.md has what was found.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from prerequisites import needs_extra, needs_gpu, needs_modules

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]


def main() -> int:
    """Runs one of the two commands; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    compiling = commands.add_parser("compile")
    compiling.add_argument("folder", type=Path)
    compiling.add_argument("--architecture", default="sm_90")
    compiling.add_argument("--processes", type=int, default=2)
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--out", type=Path)
    running.add_argument("--only", choices=("projections", "attention"))
    options = parser.parse_args()
    if options.command == "compile":
        return _compile(options)
    return _run(options)


def _compile(options: argparse.Namespace) -> int:
    needs_extra("cuda-prepare", "triton")
    from gpu_parts.cubins import compile_all

    refused = compile_all(options.folder, options.architecture, options.processes)
    for line in refused:
        print("refused:", line)
    return 0


def _run(options: argparse.Namespace) -> int:
    needs_modules("pip install torch", "torch")
    needs_gpu()
    from gpu_parts.measurement import measure

    return measure(options.folder, options.out, options.only)


if __name__ == "__main__":
    sys.exit(main())
