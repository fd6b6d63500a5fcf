"""How the lowerings of small kernels are put together: arguments with their types, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from helios.runtime.manifest import DType
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import Argument, At, CatalogueLaunch, CudaKernel, RowsOf

Typed = tuple[str, Argument]

WORD_NBYTES: Final = 4
# Rows of whole such pieces are copied by words of 32 bits, 16 bytes at a time; others by bytes.
_WHOLE_NBYTES: Final = 64


def words(*operands: str) -> dict[str, Typed]:
    """Operands that the kernel addresses as 32-bit words, whatever they hold."""
    return {operand: ("*i32", At(operand)) for operand in operands}


def capacity(launch: CatalogueLaunch) -> dict[str, Typed]:
    """The attribute of that name."""
    return integers(capacity=launch.integers["capacity"])


def integers(**values: int) -> dict[str, Typed]:
    """32-bit integers that the preparation knows."""
    return {name: ("i32", value) for name, value in values.items()}


def rows_of(operand: str, row_words: int) -> Typed:
    """How many rows of so many words an operand holds."""
    return "i32", RowsOf(operand, WORD_NBYTES * row_words)


def row_words(launch: CatalogueLaunch) -> tuple[str, int, frozenset[str]]:
    """A row of `elements` of `dtype` as `words` to copy: the pointer to them, how many, and what is
    promised of their number."""
    nbytes = row_nbytes(launch)
    if nbytes % _WHOLE_NBYTES:
        return "*i8", nbytes, frozenset()
    return "*i32", nbytes // WORD_NBYTES, frozenset({"words"})


def row_nbytes(launch: CatalogueLaunch) -> int:
    """Bytes of a row of `elements` of `dtype`."""
    return DType(launch.integers["dtype"]).row_nbytes(launch.integers["elements"])


def small_kernel(
    function: Any,
    grid: tuple[int, ...],
    arguments: Mapping[str, Typed],
    constants: Mapping[str, int | bool] | None = None,
    *,
    warps: int = 1,
    multiples_of_16: frozenset[str] = frozenset(),
) -> CudaKernel:
    """A launch without matrix products: nothing is staged through shared memory. Arguments may
    come in any order."""
    ordered = {name: arguments[name] for name in function.arg_names if name in arguments}
    request = KernelRequest(
        function,
        {name: kind for name, (kind, _) in ordered.items()},
        constants or {},
        num_warps=warps,
        num_stages=1,
        multiples_of_16=multiples_of_16,
    )
    x, y, z = (*grid, 1, 1)[:3]
    return CudaKernel(request, (x, y, z), {name: value for name, (_, value) in ordered.items()})
