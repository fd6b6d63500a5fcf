"""What the cache contract and the selected graphs say about reusing attention history. Derived from
inputs and storage alone.

Used by `selection` to fill the geometry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from helios.contract.enums import CacheRegionKind, Operation, ValueSource
from helios.contract.model import CacheRegion, GraphContract, PreparedContract
from helios.runtime.geometry import HistoryRules
from helios.runtime.manifest import LeadingCount, Manifest, Program

_RESTORING: Final = frozenset({Operation.RESTORE, Operation.RESUME, Operation.SNAPSHOT})


def history_rules(
    contract: PreparedContract, manifest: Manifest, programs: Sequence[Program]
) -> HistoryRules:
    """The rules that hold with these programs."""
    graphs = graphs_by_name(contract)
    selected = [graphs[program.name] for program in programs]
    operations = {graph.operation for graph in selected}
    regions = contract.model.cache.regions
    return HistoryRules(
        starts_at_pages=_take_endpoint(selected, Operation.INITIALIZE),
        restores=operations >= _RESTORING,
        names_endpoint=_take_endpoint(selected, Operation.SNAPSHOT),
        window_tokens=_window_tokens(regions, manifest),
        record_tokens=max((region.tokens_per_record for region in regions), default=0) or 1,
    )


def uses_boundaries(graphs: Sequence[GraphContract]) -> bool:
    """Whether a contract's graphs can make use of where prompts part from each other: they take
    snapshots, and pages alone can't begin a request."""
    snapshots = any(graph.operation is Operation.SNAPSHOT for graph in graphs)
    return snapshots and not _take_endpoint(graphs, Operation.INITIALIZE)


def graphs_by_name(contract: PreparedContract) -> Mapping[str, GraphContract]:
    """Every graph of the contract."""
    return {graph.name: graph for graph in contract.model.graphs}


def _take_endpoint(graphs: Sequence[GraphContract], operation: Operation) -> bool:
    """Whether there are graphs of an operation and all take the consumed endpoint."""
    found = [graph for graph in graphs if graph.operation is operation]
    return bool(found) and all(
        any(binding.source is ValueSource.CONSUMED_TOKENS for binding in graph.bindings)
        for graph in found
    )


def _window_tokens(regions: Sequence[CacheRegion], manifest: Manifest) -> int:
    """The widest window where every region with pages is one; 0 where one reads all pages."""
    paged = [
        region
        for region in regions
        if any(
            manifest.buffers[manifest.buffer_index[plane]].leading is LeadingCount.CACHE_PAGES
            for plane in region.planes
        )
    ]
    if any(region.kind is not CacheRegionKind.SLIDING_WINDOW for region in paged):
        return 0
    return max((region.window_tokens for region in paged), default=0)
