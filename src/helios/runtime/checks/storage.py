"""Storage that outlives a round: state views inside their buffers, cache planes inside their
regions, page tables that hold a whole context. Called by `manifest_checks`.
"""

from __future__ import annotations

from typing import Final

from helios.contract.enums import CacheRegionKind, Indexing, ValueSource
from helios.contract.fields import refuse
from helios.contract.model import CacheRegion, GraphContract, PreparedContract, StateView
from helios.runtime.checks.places import Place
from helios.runtime.manifest import (
    BufferClass,
    DeltaDestination,
    LeadingCount,
    Manifest,
    Program,
)

_PERSISTENT: Final = (BufferClass.STATE, BufferClass.CACHE, BufferClass.TUNED)
_PAGED: Final = (CacheRegionKind.PAGED_KEY_VALUE, CacheRegionKind.PAGED_LATENT)
_LEADING: Final = {
    CacheRegionKind.PAGED_KEY_VALUE: (LeadingCount.CACHE_PAGES,),
    CacheRegionKind.PAGED_LATENT: (LeadingCount.CACHE_PAGES,),
    CacheRegionKind.SLIDING_WINDOW: (LeadingCount.CACHE_PAGES, LeadingCount.SNAPSHOT_ROWS),
    CacheRegionKind.RECURRENT: (LeadingCount.SNAPSHOT_ROWS,),
    CacheRegionKind.CONTINUATION: (LeadingCount.SNAPSHOT_ROWS,),
}


def check_state_views(contract: PreparedContract, manifest: Manifest) -> None:
    """Each view lies inside every row of a persistent buffer."""
    for index, view in enumerate(contract.model.state_views):
        _check_state_view(view, manifest, contract, f"model.state_views[{index}]")


def _check_state_view(
    view: StateView, manifest: Manifest, contract: PreparedContract, where: str
) -> None:
    index = manifest.buffer_index.get(view.buffer)
    if index is None:
        refuse(f"{where}.buffer", f"{view.name!r} is in {view.buffer!r}, which doesn't exist")
    buffer = manifest.buffers[index]
    if buffer.buffer_class not in _PERSISTENT:
        refuse(
            f"{where}.buffer",
            f"{view.name!r} is in {view.buffer!r}, which is {buffer.buffer_class.name}, not"
            " persistent",
        )
    end = view.byte_offset + view.byte_extent
    if buffer.leading is LeadingCount.FIXED:
        # A row for each slot, one stride after the other.
        end += view.row_stride * (contract.max_active - 1)
    elif view.row_stride != buffer.nbytes:
        refuse(
            f"{where}.row_stride",
            f"{view.name!r} says {view.row_stride}, but a row of {view.buffer!r} has"
            f" {buffer.nbytes} bytes",
        )
    if end > buffer.nbytes:
        refuse(
            f"{where}.byte_extent",
            f"{view.name!r} ends at byte {end} of {view.buffer!r}, past its {buffer.nbytes}",
        )


def check_cache(contract: PreparedContract, manifest: Manifest) -> None:
    """Every CACHE buffer is a plane of exactly one region, and is laid out as the region says."""
    named: set[str] = set()
    for number, region in enumerate(contract.model.cache.regions):
        where = f"model.cache.regions[{number}]"
        for position, plane in enumerate(region.planes):
            _check_plane(plane, region, contract, manifest, f"{where}.planes[{position}]")
        named |= set(region.planes)
    for index, buffer in enumerate(manifest.buffers):
        if buffer.buffer_class is BufferClass.CACHE and buffer.name not in named:
            refuse(f"buffers[{index}].name", f"{buffer.name!r} is in no cache region")
    page_tokens = contract.model.cache.page_tokens
    for number, program in enumerate(manifest.programs):
        place = Place(f"programs[{number}]", f"program {program.name}")
        _check_page_attributes(program, place, page_tokens, manifest)


def _check_plane(
    plane: str, region: CacheRegion, contract: PreparedContract, manifest: Manifest, where: str
) -> None:
    index = manifest.buffer_index.get(plane)
    if index is None or manifest.buffers[index].buffer_class is not BufferClass.CACHE:
        refuse(where, f"{plane!r} is no CACHE buffer of the manifest (region {region.name})")
    buffer = manifest.buffers[index]
    if buffer.leading not in _LEADING[region.kind]:
        refuse(
            where,
            f"{plane!r} has {buffer.leading.name}, which {region.kind.name} doesn't"
            f" (region {region.name})",
        )
    if region.kind in _PAGED:
        records = contract.model.cache.page_tokens // region.tokens_per_record
        if records not in buffer.shape:
            refuse(
                where,
                f"a page of {plane!r} has shape {list(buffer.shape)}, with no dimension of its"
                f" {records} records (region {region.name})",
            )


def _check_page_attributes(
    program: Program, at: Place, page_tokens: int, manifest: Manifest
) -> None:
    """Kernels that walk pages walk them as they are."""
    for number, launch in enumerate(program.launches):
        integers = launch.kernel.integers
        if "page_tokens" not in integers:
            continue
        position = integers.index("page_tokens")
        if launch.integers[position] != page_tokens:
            at.refuse(
                f"launches[{number}].integers[{position}]",
                f"{launch.kernel.name} takes pages of {launch.integers[position]} tokens, but they"
                f" have {page_tokens}",
            )
        position = integers.index("table_pages")
        names = [operand.name for operand in launch.kernel.operands]
        operand = launch.operands[names.index("page_table")]
        assert operand is not None  # the catalogue requires it
        table = manifest.buffers[operand.buffer]
        if launch.integers[position] != table.shape[-1]:
            at.refuse(
                f"launches[{number}].integers[{position}]",
                f"{launch.kernel.name} takes tables of {launch.integers[position]} pages, but"
                f" {table.name!r} has {table.shape[-1]}",
            )


def check_page_tables(contract: PreparedContract, manifest: Manifest) -> None:
    """Each page-table view lies inside its table, which holds the pages of a whole context; its
    staging holds whatever a round may send."""
    cache = contract.model.cache
    if not cache.page_tables:
        refuse("model.cache.page_tables", "is empty")
    pages = pages_for(contract.max_context_tokens, cache.page_tokens)
    for number, view in enumerate(cache.page_tables):
        where = f"model.cache.page_tables[{number}]"
        destination = manifest.destinations.get(view.destination)
        if destination is None:
            refuse(
                f"{where}.destination",
                f"{view.name!r} is sent to {view.destination!r}, which is no transport destination",
            )
        if not isinstance(destination, DeltaDestination):
            refuse(f"{where}.destination", f"{view.name!r} must be sent as deltas")
        table = manifest.buffers[destination.target]
        if table.leading is not LeadingCount.REQUEST_SLOTS or len(table.shape) != 1:
            refuse(
                f"{where}.destination",
                f"{table.name!r} isn't a row of page ids for each request slot",
            )
        if view.page_offset >= table.shape[0]:
            refuse(
                f"{where}.page_offset",
                f"{view.name!r} begins at page {view.page_offset}, past the {table.shape[0]} of"
                f" {table.name!r}",
            )
        if view.page_offset + pages > table.shape[0]:
            refuse(
                "max_context_tokens",
                f"{contract.max_context_tokens} tokens take {pages} pages from page"
                f" {view.page_offset} on, but a row of {table.name!r} has {table.shape[0]}",
            )
        lanes = _most_lanes(view.destination, manifest, contract)
        entries = manifest.buffers[destination.index].shape[0]
        if entries < lanes * pages:
            refuse(
                f"{where}.destination",
                f"{entries} entries can be sent, but {lanes} lanes of {pages} pages may be new",
            )


def check_page_bindings(graph: GraphContract, at: Place, contract: PreparedContract) -> None:
    """Page tables are bound by slot, only through a view, and as they are."""
    views = {view.destination for view in contract.model.cache.page_tables}
    for number, binding in enumerate(graph.bindings):
        if binding.source is not ValueSource.PAGE_TABLE:
            continue
        place = at.within(f"bindings[{number}]")
        if binding.indexing is not Indexing.PHYSICAL_REQUEST_ROW:
            place.refuse(
                "indexing",
                f"a page table is indexed by PHYSICAL_REQUEST_ROW, not {binding.indexing.name}",
            )
        if binding.destination not in views:
            place.refuse("destination", f"no page-table view of {binding.destination!r}")
        if binding.offset:
            place.refuse("offset", f"is {binding.offset}, but page ids take none")


def _most_lanes(destination: str, manifest: Manifest, contract: PreparedContract) -> int:
    """Lanes of the largest program that takes a destination."""
    batches = [p.batch_capacity for p in manifest.programs if destination in p.inputs]
    return min(max(batches, default=0), contract.max_active)


def pages_for(tokens: int, page_tokens: int) -> int:
    """Pages that `tokens` tokens take."""
    return -(-tokens // page_tokens)


def page_table_width(manifest: Manifest, contract: PreparedContract) -> int:
    """Page ids that the narrowest page table holds for a slot. Only of a checked manifest."""
    targets = [manifest.destinations[v.destination] for v in contract.model.cache.page_tables]
    return min(
        manifest.buffers[target.target].shape[-1] - view.page_offset
        for target, view in zip(targets, contract.model.cache.page_tables, strict=True)
        if isinstance(target, DeltaDestination)
    )
