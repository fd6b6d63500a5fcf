"""Projections: bits over rows and variants, errors against float64, and times beside cuBLAS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from gpu_parts.geometries import (
    ADD,
    F32,
    GEOMETRIES,
    SILU_MUL,
    Geometry,
    Projection,
    projection_variants,
)
from gpu_parts.launching import Described, Library
from gpu_parts.timing import microseconds

# Rows whose bits are compared, and rows that are timed.
COMPARED: Final = (1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64, 97, 128, 200, 255, 512, 1000, 2048)
LARGEST: Final = 8192
TIMED: Final = (1, 8, 16, 32, 64, 128, 256, 512, 2048, 8192)
HEAD_ROWS: Final = 512
SEEDS: Final = 3
# Weights that a timed graph goes through: far more than the 60 MB of L2.
ROTATED_NBYTES: Final = 400e6


@dataclass
class Findings:
    """What was seen of one matrix."""

    model: str
    role: str
    shape: tuple[int, int]
    compared: int = 0
    differing: Counter[str] = field(default_factory=Counter)
    error: dict[int, float] = field(default_factory=dict)  # by splits, relative to float64
    library_error: float = 0.0
    times: dict[int, dict[str, float]] = field(default_factory=dict)  # by rows, us


class Matrix:
    """One weight matrix with inputs, and how to launch a variant on them."""

    def __init__(self, library: Library, shape: tuple[int, int, int], rows: int) -> None:
        self.outputs, self.width, self.epilogue = shape
        self.rows = rows
        self._library = library
        self._processors = torch.cuda.get_device_properties(0).multi_processor_count
        device = "cuda"
        self.x = torch.randn(rows, self.width, device=device, dtype=torch.bfloat16)
        copies = max(1, min(400, int(ROTATED_NBYTES / (2 * self.outputs * self.width))))
        self.weights = torch.randn(
            copies, self.outputs, self.width, device=device, dtype=torch.bfloat16
        )
        self.weights *= self.width**-0.5
        columns = self.outputs // 2 if self.epilogue == SILU_MUL else self.outputs
        dtype = torch.float32 if self.epilogue in (ADD, F32) else torch.bfloat16
        self.out = torch.empty(rows, columns, device=device, dtype=dtype)
        self.residual = torch.randn(rows, columns, device=device)
        self.live = torch.tensor([rows], device=device, dtype=torch.int32)
        self._bias = torch.zeros(1, device=device)
        self._partials = torch.empty(0, device=device)
        self._arrivals = torch.zeros(1 << 18, device=device, dtype=torch.int32)

    def bind(self, variant: Projection, capacity: int, copy: int = 0) -> Callable[[], None]:
        """A launch over `capacity` rows, of which `live` decides how many count."""
        kernel = self._library[variant]
        tiles_n = -(-self.outputs // variant.outputs_block)
        tiles_m = -(-capacity // variant.rows_block)
        weight = self.weights[copy]
        unweighed = (self._bias,) * 3  # nothing looks there
        if variant.kind == "few":
            tile = variant.outputs_block * variant.rows_block
            needed = variant.splits * tiles_n * tiles_m * tile if variant.splits > 1 else 1
            if self._partials.numel() < needed:
                self._partials = torch.empty(needed, device="cuda")
            return kernel.bind(
                (tiles_n, variant.splits, tiles_m),
                *(self.live, self.x, weight, self._bias, self.out),
                *unweighed,
                *(self._partials, self._arrivals, 0.0),
            )
        ctas = min(tiles_n * tiles_m, self._processors) if variant.flatten else tiles_n * tiles_m
        if variant.kind == "groups":
            unweighed = unweighed[2:]
        return kernel.bind(
            (ctas, 1, 1),
            *(self.live, Described(self.x), Described(weight), self._bias, self.out),
            *unweighed,
            0.0,
        )

    def run(self, variant: Projection, rows: int, capacity: int | None = None) -> torch.Tensor:
        """Output bits of `rows` rows; everything else must stay as it was."""
        self.live.fill_(rows)
        if self.epilogue == ADD:
            self.out.copy_(self.residual)
        else:
            self.out.fill_(float("nan"))
        before = self.out[rows:].view(_bits(self.out.dtype)).clone()
        self.bind(variant, capacity or rows)()
        after = self.out.view(_bits(self.out.dtype))
        if not torch.equal(after[rows:], before):
            raise RuntimeError(f"{variant.label} wrote past row {rows}")
        return after[:rows].clone()


def _bits(dtype: torch.dtype) -> torch.dtype:
    return torch.int32 if dtype == torch.float32 else torch.int16


def measure(library: Library, seeds: int = SEEDS) -> list[Findings]:
    """Everything about every matrix of every geometry."""
    return [
        _measure_matrix(library, geometry, role, seeds)
        for geometry in GEOMETRIES
        for role in geometry.projections
    ]


def _measure_matrix(library: Library, geometry: Geometry, role: str, seeds: int) -> Findings:
    shape = geometry.projections[role]
    variants = [v for v in projection_variants(*shape) if v in library]
    found = Findings(geometry.name, role, shape[:2])
    largest = HEAD_ROWS if role == "head" else LARGEST
    for seed in range(seeds):
        torch.manual_seed(1000 * seed + len(role))
        matrix = Matrix(library, shape, largest)
        _compare(matrix, variants, found, full=seed == 0)
    for rows in TIMED:
        if rows <= largest:
            found.times[rows] = _time(matrix, variants, rows)
    return found


def _compare(matrix: Matrix, variants: list[Projection], found: Findings, *, full: bool) -> None:
    for splits in sorted({v.splits for v in variants}):
        equal_splits = [v for v in variants if v.splits == splits]
        narrow = min(equal_splits, key=lambda v: (v.kind != "few", v.rows_block, v.stages))
        expected = matrix.run(narrow, matrix.rows)
        found.error[splits] = _error(matrix, expected.view(matrix.out.dtype))
        if not found.error[splits] < 1e-2:
            found.differing[f"split {splits} is wrong"] += 1
        for variant in equal_splits:
            sizes: Iterable[int] = (*COMPARED, matrix.rows) if full else (1, 13, 129, matrix.rows)
            for rows in (size for size in sizes if size <= matrix.rows):
                # A few-rows kernel over thousands of rows is correct and slow: look at it once.
                if variant.kind == "few" and rows > 1000 and variant.rows_block < 64:
                    continue
                # Odd counts have room for more rows, as in a batch that isn't full.
                capacity = min(rows + 70, matrix.rows) if rows % 2 else rows
                bits = matrix.run(variant, rows, capacity)
                found.compared += 1
                if not torch.equal(bits, expected[:rows]):
                    found.differing[variant.label] += 1
        # A row's place in its tile decides nothing.
        shift = 5
        moved = matrix.x.roll(shift, 0)
        kept, matrix.x = matrix.x, moved
        if matrix.epilogue != ADD:
            for variant in (narrow, equal_splits[-1]):
                bits = matrix.run(variant, matrix.rows)
                found.compared += 1
                if not torch.equal(bits, expected.roll(shift, 0)):
                    found.differing[variant.label + " moved"] += 1
        matrix.x = kept


def _error(matrix: Matrix, out: torch.Tensor) -> float:
    """‖out − exact‖ / ‖exact‖ over some rows, in float64."""
    some = torch.arange(0, matrix.rows, max(1, matrix.rows // 64), device="cuda")
    exact = matrix.x[some].double() @ matrix.weights[0].double().T
    if matrix.epilogue == SILU_MUL:
        gate, up = exact.view(len(some), -1, 2, 8).permute(2, 0, 1, 3).reshape(2, len(some), -1)
        exact = torch.nn.functional.silu(gate) * up
    got = out[some].double()
    if matrix.epilogue == ADD:
        got = got - matrix.residual[some].double()
    return float((got - exact).norm() / exact.norm())


def _time(matrix: Matrix, variants: list[Projection], rows: int) -> dict[str, float]:
    matrix.live.fill_(rows)
    copies = len(matrix.weights)
    flops = 2 * rows * matrix.outputs * matrix.width
    launches = copies if flops < 1e11 else max(2, min(copies, int(4e12 / flops)))
    fitting = [v for v in variants if _is_sensible(v, rows)]
    ways: dict[str, Any] = {
        v.label: [matrix.bind(v, rows, copy % copies) for copy in range(launches)] for v in fitting
    }
    x = matrix.x[:rows]
    product = torch.empty(rows, matrix.outputs, device="cuda", dtype=torch.bfloat16)
    out = matrix.out[:rows]
    half = product.view(rows, 2, -1)

    def multiply(copy: int) -> None:
        torch.mm(x, matrix.weights[copy % copies].T, out=product)

    def finish(copy: int) -> None:
        multiply(copy)
        if matrix.epilogue == ADD:
            out.add_(product)
        elif matrix.epilogue == SILU_MUL:
            torch.mul(torch.nn.functional.silu(half[:, 0]), half[:, 1], out=out)
        elif matrix.epilogue == F32:
            out.copy_(product)

    ways["cuBLAS"] = [lambda copy=copy: multiply(copy) for copy in range(launches)]
    ways["cuBLAS and epilogue"] = [lambda copy=copy: finish(copy) for copy in range(launches)]
    return microseconds(ways)


def _is_sensible(variant: Projection, rows: int) -> bool:
    """Whether a variant may win at a number of rows."""
    if variant.kind == "few":
        block = variant.rows_block
        if variant.rows_first:
            return rows <= 128
        return rows <= 256 and (block >= rows or block >= 64) and block <= max(16, 2 * rows)
    if not variant.rows_first and variant.rows_block < 64:
        return rows <= variant.rows_block
    return variant.rows_block <= max(64, 2 * rows)
