"""Lowerings of copies inside persistent storage: pages to and from saved rows, rows of a buffer."""

from __future__ import annotations

from typing import Final

from ignition.kernels.cuda import pages as kernels
from ignition.kernels.cuda.launches import At, CatalogueLaunch, CudaKernel, RowsOf
from ignition.kernels.cuda.lowerings.building import (
    Typed,
    capacity,
    integers,
    row_nbytes,
    row_words,
    rows_of,
    small_kernel,
    words,
)

# Lanes that a program looks at together for one that comes later and copies to the same place.
_LANES: Final = 32
# 32-bit words of a program: 16 bytes a thread, four times.
_WORDS: Final = 2048
_WARPS: Final = 4


def save_page(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A program for each 8 KiB of a page."""
    return (_copy_pages(launch, save=True),)


def load_page(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A program for each 8 KiB of a page."""
    return (_copy_pages(launch, save=False),)


def _copy_pages(launch: CatalogueLaunch, *, save: bool) -> CudaKernel:
    source, destination = ("plane", "saved") if save else ("saved", "plane")
    kind, count, multiples = row_words(launch)
    table_pages = launch.integers["table_pages"]
    arguments: dict[str, Typed] = {
        **words("rows", "slot", "endpoint", "row", "page_table"),
        "source": (kind, At(source)),
        "destination": (kind, At(destination)),
        **capacity(launch),
        **integers(
            page_tokens=launch.integers["page_tokens"], table_pages=table_pages, words=count
        ),
        "slots": rows_of("page_table", table_pages),
        "pages": ("i32", RowsOf("plane", row_nbytes(launch))),
        "saved_rows": ("i32", RowsOf("saved", row_nbytes(launch))),
    }
    return small_kernel(
        kernels.copy_pages,
        (-(-count // _WORDS), launch.integers["capacity"]),
        arguments,
        {"SAVE": save, "LANES": _LANES, "BLOCK": _WORDS},
        warps=_WARPS,
        multiples_of_16=multiples,
    )


def copy_rows(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A program for each 2 KiB of all rows: copies follow each other, so parts are small."""
    kind, count, multiples = row_words(launch)
    block = _WORDS // 4
    arguments: dict[str, Typed] = {
        **words("rows", "source", "destination"),
        "buffer": (kind, At("buffer")),
        **capacity(launch),
        **integers(words=count),
        "buffer_rows": ("i32", RowsOf("buffer", row_nbytes(launch))),
    }
    kernel = small_kernel(
        kernels.copy_rows,
        (-(-count // block),),
        arguments,
        {"BLOCK": block},
        warps=_WARPS,
        multiples_of_16=multiples,
    )
    return (kernel,)
