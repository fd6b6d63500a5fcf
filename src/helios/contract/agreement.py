"""What several fields of a model contract must agree on: names, references, state access.

Takes decoded values and raises ContractError with the field's path; the execution manifest's side
of these references is checked by `helios.runtime.manifest_checks`.
"""

from __future__ import annotations

from helios.contract.enums import Operation, ValueSource
from helios.contract.fields import refuse, unique
from helios.contract.model import GraphContract, ModelContract, StateView

TOKEN_NBYTES = 4  # of a token id in device state
# Operations that consume the pending token of the round before.
_FEEDS_PENDING = (Operation.DECODE, Operation.SPECULATIVE, Operation.MIXED)
# Operations that leave a pending token or prepare its place.
_PRODUCES_PENDING = (
    Operation.INITIALIZE,
    Operation.RESTORE,
    Operation.PREFILL,
    Operation.SCORED_PREFILL,
    Operation.RESUME,
    *_FEEDS_PENDING,
)
_LENGTHS = (ValueSource.QUERY_LENGTH, ValueSource.SPECULATIVE_PREFIX_LIMIT)


def check_agreement(model: ModelContract) -> None:
    """Refuses duplicates and dangling references."""
    if not model.graphs:
        refuse("model.graphs", "is empty")
    unique((graph.name for graph in model.graphs), "model.graphs", ".name")
    unique((view.name for view in model.state_views), "model.state_views", ".name")
    views = {view.name: view for view in model.state_views}
    for index, graph in enumerate(model.graphs):
        where = f"model.graphs[{index}]"
        if graph.operation is Operation.TUNE:
            refuse(f"{where}.operation", "TUNE belongs to the manifest's tuning catalog")
        unique((b.destination for b in graph.bindings), f"{where}.bindings", ".destination")
        unique((a.view for a in graph.accesses), f"{where}.accesses", ".view")
        unique((t.buffer for t in graph.tuned_bindings), f"{where}.tuned_bindings", ".buffer")
        for number, access in enumerate(graph.accesses):
            if access.view not in views:
                refuse(f"{where}.accesses[{number}].view", f"no state view {access.view!r}")
        _check_pending(graph, where, views)
        _check_speculative(graph, where, views)


def _check_pending(graph: GraphContract, where: str, views: dict[str, StateView]) -> None:
    if graph.pending_token is None:
        return
    host = graph.pending_token.host_binding
    if host is not None:
        if any(binding.destination == host.destination for binding in graph.bindings):
            refuse(
                f"{where}.pending_token.host_binding.destination",
                f"{host.destination!r} is bound twice",
            )
        return
    view = graph.pending_token.state_view
    path = f"{where}.pending_token.state_view"
    if view not in views:
        refuse(path, f"no state view {view!r}")
    if views[view].byte_extent != TOKEN_NBYTES:
        refuse(path, f"{view!r} has {views[view].byte_extent} bytes, a token has {TOKEN_NBYTES}")
    mode = next((access.mode for access in graph.accesses if access.view == view), None)
    if mode is None:
        refuse(path, f"the graph declares no access to {view!r}")
    if graph.operation in _FEEDS_PENDING and not mode.reads:
        refuse(path, f"{graph.operation.name} must read {view!r}")
    if graph.operation in _PRODUCES_PENDING and not mode.writes:
        refuse(path, f"{graph.operation.name} must declare that it writes {view!r}")


def _check_speculative(graph: GraphContract, where: str, views: dict[str, StateView]) -> None:
    if graph.draft_cursor is not None:
        view, path = graph.draft_cursor.state_view, f"{where}.draft_cursor.state_view"
        if view not in views:
            refuse(path, f"no state view {view!r}")
        if views[view].byte_extent != TOKEN_NBYTES:
            refuse(path, f"{view!r} has {views[view].byte_extent} bytes, a cursor {TOKEN_NBYTES}")
    if graph.operation is Operation.SPECULATIVE:
        lengths = [b.source.name for b in graph.bindings if b.source in _LENGTHS]
        if len(lengths) != 1:
            refuse(
                f"{where}.bindings",
                "SPECULATIVE binds exactly one of QUERY_LENGTH and SPECULATIVE_PREFIX_LIMIT,"
                f" not {len(lengths)}",
            )
    elif graph.confidence_width:
        refuse(f"{where}.confidence_width", f"belongs to SPECULATIVE, not {graph.operation.name}")
