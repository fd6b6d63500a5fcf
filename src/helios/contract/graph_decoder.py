"""Decoding of graph contracts and state views: bindings, accesses, pending token, draft cursor.

Called by `decoder` alone; references between the parts are checked by `agreement`.
"""

from __future__ import annotations

from typing import Any

from helios.contract.enums import AccessMode, Indexing, Operation, ValueSource
from helios.contract.fields import each, enum, integer, join, name, refuse
from helios.contract.model import (
    DraftCursor,
    GraphContract,
    PendingToken,
    StateAccess,
    StateView,
    TunedBinding,
    ValueBinding,
)

UINT63_MAX = (1 << 63) - 1


def decode_state_view(message: Any, where: str) -> StateView:
    """One state view; whether its buffer exists and holds it is the manifest's side."""
    stride = integer(message.row_stride, join(where, "row_stride"), low=1, high=UINT63_MAX)
    return StateView(
        name=name(message.name, join(where, "name")),
        buffer=name(message.buffer, join(where, "buffer")),
        byte_offset=integer(message.byte_offset, join(where, "byte_offset"), high=UINT63_MAX),
        row_stride=stride,
        byte_extent=integer(message.byte_extent, join(where, "byte_extent"), low=1, high=stride),
    )


def _binding(message: Any, where: str) -> ValueBinding:
    source = enum(ValueSource, message.source, join(where, "source"))
    if message.constant and source is not ValueSource.CONSTANT:
        refuse(join(where, "constant"), f"belongs to the source CONSTANT, not to {source.name}")
    if bool(message.image_tensor) != (source is ValueSource.IMAGE_TENSOR):
        refuse(join(where, "image_tensor"), "belongs to the source IMAGE_TENSOR and it alone")
    return ValueBinding(
        destination=name(message.destination, join(where, "destination")),
        source=source,
        indexing=enum(Indexing, message.indexing, join(where, "indexing")),
        offset=message.offset,
        padding=message.padding,
        constant=message.constant,
        image_tensor=message.image_tensor,
    )


def decode_graph(message: Any, where: str) -> GraphContract:
    """One graph with its bindings, accesses and owners."""
    return GraphContract(
        name=name(message.name, join(where, "name")),
        operation=enum(Operation, message.operation, join(where, "operation")),
        bindings=each(message.bindings, join(where, "bindings"), _binding),
        accesses=each(message.accesses, join(where, "accesses"), _access),
        tuned_bindings=each(message.tuned_bindings, join(where, "tuned_bindings"), _tuned),
        pending_token=_pending_token(message, where),
        draft_cursor=_draft_cursor(message, where),
        state_rows_per_request=integer(
            message.state_rows_per_request, join(where, "state_rows_per_request"), high=1 << 16
        ),
        confidence_width=integer(
            message.confidence_width, join(where, "confidence_width"), high=1 << 16
        ),
    )


def _access(message: Any, where: str) -> StateAccess:
    return StateAccess(
        view=name(message.view, join(where, "view")),
        mode=enum(AccessMode, message.mode, join(where, "mode")),
    )


def _tuned(message: Any, where: str) -> TunedBinding:
    return TunedBinding(
        buffer=name(message.buffer, join(where, "buffer")),
        producer=name(message.producer, join(where, "producer")),
    )


def _pending_token(message: Any, where: str) -> PendingToken | None:
    if not message.HasField("pending_token"):
        return None
    path = join(where, "pending_token")
    pending = message.pending_token
    owner = pending.WhichOneof("owner")
    if owner is None:
        refuse(join(path, "owner"), "is missing")
    if owner == "state_view":
        return PendingToken(name(pending.state_view, join(path, "state_view")), None)
    binding = _binding(pending.host_binding, join(path, "host_binding"))
    if binding.source is not ValueSource.PENDING_TOKEN:
        refuse(join(path, "host_binding.source"), f"is {binding.source.name}, not PENDING_TOKEN")
    return PendingToken(None, binding)


def _draft_cursor(message: Any, where: str) -> DraftCursor | None:
    if not message.HasField("draft_cursor"):
        return None
    path = join(where, "draft_cursor")
    return DraftCursor(
        state_view=name(message.draft_cursor.state_view, join(path, "state_view")),
        lag_tokens=integer(message.draft_cursor.lag_tokens, join(path, "lag_tokens")),
    )
