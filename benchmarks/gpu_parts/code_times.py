"""Projections by 8-bit codes on a GPU: bits over tiles and rows, errors, and times."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch

from gpu_parts.code_variants import HEAD_ROWS, ROWS, CodeMatrix, is_sensible
from gpu_parts.geometries import ADD, F32, SILU_MUL
from gpu_parts.launching import Described, Kernel
from gpu_parts.timing import copy_terabytes_per_second, microseconds, product_teraflops
from ignition.kernels.cuda import scaled_tiles
from ignition.kernels.cuda.scaled_tiles import ScaledTile

# Weights that a timed graph goes through: far more than the 60 MB of L2.
_ROTATED_NBYTES: Final = 400e6
_COMPARED: Final = (1, 3, 8, 17, 33, 64, 97, 128, 255, 1000)
_PROCESSORS: Final = 132
_WORST_ERROR: Final = 1e-2  # relative to float64; bf16 output rounds by a sixth of it

Kernels = dict[ScaledTile, Kernel]


class Operands:
    """A matrix of random codes with inputs, and how to launch a tile on them."""

    def __init__(self, matrix: CodeMatrix, rows: int) -> None:
        self.matrix, self.rows = matrix, rows
        copies = max(1, min(400, int(_ROTATED_NBYTES / matrix.nbytes)))
        codes = matrix.outputs * matrix.width
        self.weights = torch.randint(
            0, 256, (copies, matrix.nbytes), device="cuda", dtype=torch.uint8
        )
        if matrix.fp8:
            # Codes whose exponent is a small number's, as those of most weights: never NaN.
            self.weights[:, :codes] &= 0xBF
        scales = self.weights[:, codes:].view(torch.float32)
        scales.uniform_(0.5, 1.5).mul_((0.05 if matrix.fp8 else 0.014) * matrix.width**-0.5)
        self.x = torch.randn(rows, matrix.width, device="cuda", dtype=torch.bfloat16)
        columns = matrix.outputs // 2 if matrix.epilogue == SILU_MUL else matrix.outputs
        wide = matrix.epilogue in (ADD, F32)
        dtype = torch.float32 if wide else torch.bfloat16
        self.out = torch.empty(rows, columns, device="cuda", dtype=dtype)
        self.residual = torch.randn(rows, columns, device="cuda")
        self.live = torch.tensor([rows], device="cuda", dtype=torch.int32)
        self._bias = torch.zeros(1, device="cuda")
        self._partials = torch.empty(matrix.parts * (matrix.outputs + 128) * 256, device="cuda")
        self._arrivals = torch.zeros(1 << 14, device="cuda", dtype=torch.int32)

    def bind(
        self, kernel: Kernel, tile: ScaledTile, capacity: int, copy: int = 0, waves: int = 0
    ) -> Callable[[], None]:
        """A launch over `capacity` rows. With `waves` so many CTAs a multiprocessor at most, which
        take tiles one after the other."""
        matrix = self.matrix
        tiles = tile.count(capacity, matrix.outputs)
        apart = tile.apart and matrix.parts > 1
        assert not apart or matrix.parts * tiles * tile.outputs * tile.rows <= len(self._partials)
        weight = self.weights[copy]
        codes = weight[: matrix.outputs * matrix.width].view(matrix.outputs, matrix.width)
        return kernel.bind(
            (
                min(tiles, waves * _PROCESSORS) if waves else tiles,
                matrix.parts if apart else 1,
                1,
            ),
            *(self.live, Described(self.x), Described(codes), weight, self._bias, self.out),
            *(self._partials, self._arrivals),
        )

    def run(self, kernel: Kernel, tile: ScaledTile, rows: int) -> torch.Tensor:
        """Output bits of `rows` rows; everything else must stay as it was."""
        self.live.fill_(rows)
        if self.matrix.epilogue == ADD:
            self.out.copy_(self.residual)
        else:
            self.out.fill_(float("nan"))
        bits = self.out.view(torch.int32 if self.out.dtype == torch.float32 else torch.int16)
        before = bits[rows:].clone()
        self.bind(kernel, tile, min(rows + 70, self.rows) if rows % 2 else rows)()
        if not torch.equal(bits[rows:], before):
            raise RuntimeError(f"{self.matrix.label} {tile} wrote past row {rows}")
        return bits[:rows].clone()

    def numbers(self) -> torch.Tensor:
        """The first copy's weights [outputs, width], float64."""
        matrix, weight = self.matrix, self.weights[0]
        codes = weight[: matrix.outputs * matrix.width].view(matrix.outputs, matrix.width)
        scales = weight[matrix.outputs * matrix.width :].view(torch.float32).double()
        scales = scales.view(matrix.blocks, matrix.outputs)
        if matrix.fp8:
            return codes.view(torch.float8_e4m3fn).double() * scales[0][:, None]
        each = scales.repeat_interleave(128, 0)[: matrix.width].T
        return codes.view(torch.int8).double() * each

    def error(self) -> float:
        """‖out − exact‖ / ‖exact‖ of the last run, over some rows."""
        matrix = self.matrix
        some = torch.arange(0, self.rows, max(1, self.rows // 32), device="cuda")
        exact = self.x[some].double() @ self.numbers().T
        if matrix.epilogue == SILU_MUL:
            gate, up = exact.view(len(some), -1, 2, 8).permute(2, 0, 1, 3)
            exact = (torch.nn.functional.silu(gate) * up).reshape(len(some), -1)
        got = self.out[some].double()
        if matrix.epilogue == ADD:
            got = got - self.residual[some].double()
        return float((got - exact).norm() / exact.norm())


def measure(folder: Path, out: Path | None) -> int:
    """Everything about every matrix of the folder; the exit status: 1 where bits differ."""
    torch.zeros(1, device="cuda")
    copy, product = copy_terabytes_per_second(), product_teraflops()
    print(f"copy {copy:.2f} TB/s, 8192³ product {product:.0f} TFLOP/s", flush=True)
    kernels: dict[CodeMatrix, Kernels] = {}
    for entry in json.loads((folder / "codes.json").read_text()):
        of_matrix = kernels.setdefault(CodeMatrix(**entry["matrix"]), {})
        of_matrix[ScaledTile(**entry["tile"])] = Kernel(folder, entry)
    results, wrong = [], 0
    for matrix, tiles in kernels.items():
        largest = HEAD_ROWS if matrix.role == "head" else ROWS[-1]
        torch.manual_seed(matrix.outputs + matrix.width)
        operands = Operands(matrix, largest)
        compared, differing, error = _compare(operands, tiles)
        wrong += bool(differing) or not error < _WORST_ERROR
        differ = f"{len(differing)} differ {differing[:4]}"
        print(f"\n{matrix.label}: {compared} comparisons, {differ}; error {error:.2e}", flush=True)
        found: dict[int, dict[str, float]] = {}
        for rows in (rows for rows in ROWS if rows <= largest):
            found[rows] = _time(operands, tiles, rows)
            moved = matrix.nbytes + 2 * rows * (matrix.width + matrix.outputs)
            work = 2 * rows * matrix.outputs * matrix.width
            _print(matrix, rows, found[rows], max(moved / copy, work / product) / 1e6)
        results.append({"matrix": asdict(matrix), "error": error, "times": found})
    if out is not None:
        out.write_text(json.dumps({"copy": copy, "product": product, "matrices": results}))
    return int(bool(wrong))


def _compare(operands: Operands, tiles: Kernels) -> tuple[int, list[str], float]:
    """How many outputs were compared, what differed, and the error of all rows."""
    reference = next(tile for tile in tiles if not tile.apart or operands.rows <= HEAD_ROWS)
    expected = operands.run(tiles[reference], reference, operands.rows)
    error = operands.error()
    compared, differing = 0, []
    for tile, kernel in tiles.items():
        for rows in (*(r for r in _COMPARED if r <= operands.rows), operands.rows):
            if tile.apart and rows > HEAD_ROWS:
                continue  # correct and slow, and parts take much room
            compared += 1
            if not torch.equal(operands.run(kernel, tile, rows), expected[:rows]):
                differing.append(f"{tile} rows {rows}")
    return compared, differing, error


def _time(operands: Operands, tiles: Kernels, rows: int) -> dict[str, float]:
    matrix = operands.matrix
    operands.live.fill_(rows)
    copies = len(operands.weights)
    work = 2 * rows * matrix.outputs * matrix.width
    launches = copies if work < 1e11 else max(2, min(copies, int(2e12 / work)))
    ways: dict[str, Any] = {}
    for tile, kernel in tiles.items():
        if not is_sensible(tile, rows):
            continue
        count = tile.count(rows, matrix.outputs)
        for waves in (0, 1, 2):
            if waves and (tile.apart or matrix.model != "8B" or count <= waves * _PROCESSORS):
                continue
            ways[_name(tile, waves)] = [
                operands.bind(kernel, tile, rows, copy % copies, waves) for copy in range(launches)
            ]
    x = operands.x[:rows]
    weights = torch.randn(
        max(copies // 2, 1), matrix.width, matrix.outputs, device="cuda", dtype=torch.bfloat16
    )
    product = torch.empty(rows, matrix.outputs, device="cuda", dtype=torch.bfloat16)

    def multiply(copy: int) -> None:
        torch.mm(x, weights[copy % len(weights)], out=product)

    ways["cuBLAS bf16"] = [lambda copy=copy: multiply(copy) for copy in range(launches)]
    return microseconds(ways)


def _name(tile: ScaledTile, waves: int) -> str:
    turns = f" turns {waves}" if waves else " apart" if tile.apart else ""
    return f"{tile.outputs}x{tile.rows} w{tile.warps} s{tile.stages}{turns}"


def _print(matrix: CodeMatrix, rows: int, times: dict[str, float], floor_us: float) -> None:
    library = times["cuBLAS bf16"]
    ours = sorted((us, name) for name, us in times.items() if name != "cuBLAS bf16")
    chosen = scaled_tiles.tile(rows, matrix.outputs, matrix.width, _PROCESSORS, fp8=matrix.fp8)
    picked = times.get(_name(chosen, 0), float("nan"))
    best = ", ".join(f"{name} {us:.2f}" for us, name in ours[:5])
    shares = f"picked {picked:.2f} ({floor_us / picked:.0%})"
    shares += f", best {ours[0][0]:.2f} ({floor_us / ours[0][0]:.0%})"
    print(f"  {rows:5}: {shares}, cuBLAS bf16 {library:.2f} | {best}", flush=True)
