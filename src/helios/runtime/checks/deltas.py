"""Values sent as deltas: which sources, to which tables, from which staging.

A delta destination is a persistent table with a row for each request slot; a round sends what is
new. Called by `checks.bindings` for every graph, and by `packing` for the selected ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.contract.enums import Indexing, ValueSource
from helios.contract.fields import refuse
from helios.contract.model import PreparedContract, ValueBinding
from helios.runtime.checks.places import Place
from helios.runtime.checks.storage import pages_for
from helios.runtime.manifest import DeltaDestination, LeadingCount, Manifest
from helios.runtime.value_bounds import Bounds

DELTAS: Final = frozenset(
    (ValueSource.PAGE_TABLE, ValueSource.PROMPT_HISTOGRAM, ValueSource.OUTPUT_HISTOGRAM)
)


def check_delta(
    binding: ValueBinding,
    at: Place,
    destination: DeltaDestination,
    manifest: Manifest,
    bounds: Bounds,
) -> None:
    """A binding to a delta destination: the source, its rows, and staging for all entries that may
    be new in one round."""
    if binding.source not in DELTAS:
        at.refuse("source", f"{binding.source.name} can't be sent as a delta")
    if binding.indexing is not Indexing.PHYSICAL_REQUEST_ROW:
        at.refuse(
            "indexing", f"a delta is indexed by PHYSICAL_REQUEST_ROW, not {binding.indexing.name}"
        )
    table = manifest.buffers[destination.target]
    if table.leading is not LeadingCount.REQUEST_SLOTS or len(table.shape) != 1:
        at.refuse("destination", f"{table.name!r} isn't a row for each request slot")
    if binding.source is ValueSource.PAGE_TABLE:
        each = pages_for(bounds.context_tokens, bounds.page_tokens)
        what = f"{each} pages"
    else:
        if not bounds.histogram_tokens or table.shape[0] != bounds.histogram_tokens:
            at.refuse(
                "destination",
                f"a row of {table.name!r} has {table.shape[0]} elements, but a histogram of this"
                f" vocabulary {bounds.histogram_tokens}",
            )
        if binding.offset:
            at.refuse("offset", f"{binding.source.name} takes no offset")
        each = min(bounds.histogram_tokens, bounds.context_tokens)
        what = f"{each} different tokens"
    entries = manifest.buffers[destination.index].shape[0]
    if entries < bounds.active_lanes * each:
        at.refuse(
            "destination",
            f"{entries} entries can be sent, but {bounds.active_lanes} lanes of {what} may be new",
        )


def page_offset(destination: str, contract: PreparedContract, manifest: Manifest) -> int:
    """Where page ids begin in the rows of a destination's table, as its views say. Raises
    ContractError where two views of the destination differ, or where another destination of the
    same table begins inside its pages: their entries would overwrite each other."""
    cache = contract.model.cache
    pages = pages_for(contract.max_context_tokens, cache.page_tokens)
    found: int | None = None
    target = manifest.destinations[destination]
    assert isinstance(target, DeltaDestination)
    views = list(enumerate(cache.page_tables))
    for _, view in views:
        if view.destination == destination:
            found = view.page_offset if found is None else found
    assert found is not None  # `check_page_bindings` has looked
    for number, view in views:
        other = manifest.destinations.get(view.destination)
        if not isinstance(other, DeltaDestination) or other.target != target.target:
            continue
        distance = abs(view.page_offset - found)
        if distance and (view.destination == destination or distance < pages):
            refuse(
                f"model.cache.page_tables[{number}].page_offset",
                f"is {view.page_offset}, but another view of the same table begins at page"
                f" {found}: their pages would overwrite each other",
            )
    return found


def check_delta_places(
    placed: Sequence[tuple[Place, ValueBinding]], contract: PreparedContract, manifest: Manifest
) -> None:
    """No two bindings of a graph send the same entries of the same table."""
    taken: dict[tuple[int, int], str] = {}
    for place, binding in placed:
        destination = manifest.destinations[binding.destination]
        if not isinstance(destination, DeltaDestination):
            continue
        first = 0
        if binding.source is ValueSource.PAGE_TABLE:
            first = page_offset(binding.destination, contract, manifest)
        other = taken.setdefault((destination.target, first), binding.destination)
        if other != binding.destination:
            place.refuse(
                "destination",
                f"{binding.destination!r} sends what {other!r} sends: both are entries of"
                f" {manifest.buffers[destination.target].name!r} from element {first} on",
            )
