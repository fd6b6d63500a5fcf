"""Which tiles suit projections by weights of 8-bit codes, and how far are they from the floor?

Two commands, for two machines:

    python benchmarks/gpu_codes.py compile FOLDER [--processes 2] [--models 135M,0.6B,8B]
        compiles every tile that is tried; needs the extra `cuda-prepare` (Triton) and no GPU
    python benchmarks/gpu_codes.py run FOLDER [--out RESULTS.json]
        needs a GPU, cuda-bindings and PyTorch (whose float64 is the reference and whose bf16
        product is the comparison), not Triton

`run` compares the bits of all tiles with each other over numbers of rows, and their values with
float64, then times them in turn, beside the tile that `scaled_tiles` picks and cuBLAS on bf16
weights. Per cent are of the floor: bytes of codes, scales and rows over a copy's rate, operations
over a large product's. docs/cuda.md has what was found.
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
    compiling.add_argument("--processes", type=int, default=2)
    compiling.add_argument("--models", default="135M,0.6B,8B")
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.command == "compile":
        needs_extra("cuda-prepare", "triton")
        from gpu_parts.code_cubins import compile_variants
        from gpu_parts.geometries import GEOMETRIES

        models, known = options.models.split(","), [geometry.name for geometry in GEOMETRIES]
        if unknown := sorted(set(models) - set(known)):
            parser.error(f"--models: no {', '.join(unknown)}; there are {', '.join(known)}")
        for line in compile_variants(options.folder, models, options.processes):
            print("refused:", line)
        return 0
    needs_modules("pip install torch", "torch")
    needs_gpu()
    from gpu_parts.code_times import measure

    return measure(options.folder, options.out)


if __name__ == "__main__":
    sys.exit(main())
