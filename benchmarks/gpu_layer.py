"""What does a layer take on a GPU, launch after launch, and which tiles suit it?

Two commands, for two machines:

    python benchmarks/gpu_layer.py compile FOLDER [--processes 2] [--models 135M,0.6B]
        lowers and compiles the launches of a layer, in every way that is tried; needs the extra
        `cuda-prepare` (Triton) and no GPU
    python benchmarks/gpu_layer.py run FOLDER [--before OTHER] [--out RESULTS.json]
        [--models 135M] [--rows 1,8] needs a GPU, cuda-bindings and PyTorch (which owns the
        memory), not Triton; OTHER was compiled from other sources, whose choice is timed as well

`run` times all layers of a model as one explicit graph with programmatic edges, weights and cache
of each layer its own, and compares the residual that comes out, bit for bit, between ways that cut
reductions alike. A way differs from the first of its table in one choice. docs/cuda.md has what
was found.
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
    for name in ("compile", "run"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        command.add_argument("--models", default="135M,0.6B,8B")
        command.add_argument("--rows", default="1,8,32,128,512,2048,8192")
        if name == "compile":
            command.add_argument("--processes", type=int, default=2)
            command.add_argument("--chosen", action="store_true", help="no way but the default")
        else:
            command.add_argument("--out", type=Path)
            command.add_argument("--before", type=Path)
            command.add_argument("--seconds", type=float, default=480.0)
    options = parser.parse_args()
    models = options.models.split(",")
    rows = [int(count) for count in options.rows.split(",")]
    if options.command == "compile":
        needs_extra("cuda-prepare", "triton")
        from gpu_parts.layer_cubins import compile_plans

        compile_plans(options.folder, models, rows, options.processes, options.chosen)
        return 0
    needs_modules("pip install torch", "torch")
    needs_gpu()
    from gpu_parts.layer_times import measure

    folders = [options.folder, *([options.before] if options.before else [])]
    return measure(folders, models, rows, options.seconds, options.out)


if __name__ == "__main__":
    sys.exit(main())
