"""Reference kernels that copy inside persistent storage: a slot's page to and from a saved row,
rows of one buffer.

Elements are counted, not bytes, so that buffers which the reference keeps in wider elements copy
alike. `dtype` attributes have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from helios.runtime.reference.arrays import I32, live_rows

Elements = NDArray[Any]


def save_page(
    rows: I32, slot: I32, endpoint: I32, row: I32, page_table: I32, plane: Elements,
    saved: Elements,
    *, capacity: int, page_tokens: int, table_pages: int, elements: int, dtype: int,
) -> None:  # fmt: skip
    """Copies the page that holds each lane's next token to its row."""
    live = live_rows(rows, capacity)
    places = _places(slot[:live], endpoint[:live], row[:live], page_table, page_tokens, table_pages)
    _copy(places, _blocks(plane, elements), _blocks(saved, elements), into_saved=True)


def load_page(
    rows: I32, slot: I32, endpoint: I32, row: I32, page_table: I32, saved: Elements,
    plane: Elements,
    *, capacity: int, page_tokens: int, table_pages: int, elements: int, dtype: int,
) -> None:  # fmt: skip
    """Copies each lane's row to the page that holds its next token."""
    live = live_rows(rows, capacity)
    places = _places(slot[:live], endpoint[:live], row[:live], page_table, page_tokens, table_pages)
    _copy(places, _blocks(plane, elements), _blocks(saved, elements), into_saved=False)


def _places(
    slot: I32, endpoint: I32, row: I32, page_table: I32, page_tokens: int, table_pages: int
) -> Iterator[tuple[int, int]]:
    """Page and row of each lane that has something to copy."""
    tables = page_table[: len(page_table) // table_pages * table_pages].reshape(-1, table_pages)
    for one, end, saved in zip(slot.tolist(), endpoint.tolist(), row.tolist(), strict=True):
        column, partial = divmod(end, page_tokens)
        if end > 0 and partial and column < table_pages and 0 <= one < len(tables):
            yield int(tables[one, column]), saved


def _copy(
    places: Iterator[tuple[int, int]], pages: Elements, rows: Elements, *, into_saved: bool
) -> None:
    for page, row in places:
        if not (0 <= page < len(pages) and 0 <= row < len(rows)):
            continue
        if into_saved:
            rows[row] = pages[page]
        else:
            pages[page] = rows[row]


def copy_rows(
    rows: I32, source: I32, destination: I32, buffer: Elements,
    *, capacity: int, elements: int, dtype: int,
) -> None:  # fmt: skip
    """Copies rows in order; a source that is none fills with zeros."""
    blocks = _blocks(buffer, elements)
    for at in range(live_rows(rows, capacity)):
        if 0 <= destination[at] < len(blocks):
            known = 0 <= source[at] < len(blocks)
            blocks[destination[at]] = blocks[source[at]] if known else 0


def _blocks(buffer: Elements, elements: int) -> Elements:
    """The whole pieces of a buffer, as rows."""
    return buffer[: len(buffer) // elements * elements].reshape(-1, elements)
