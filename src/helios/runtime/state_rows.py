"""How state rows are shared out: request slots first, then snapshots, each with as many rows.

Buffers with the leading count SNAPSHOT_ROWS have `StateRows.count` rows. Used by selection, which
sizes them, and by `packing`, which turns slots and snapshots into row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.contract.model import PreparedContract
from helios.dataclass import dataclass
from helios.runtime.manifest import Program


@dataclass(frozen=True, slots=True)
class StateRows:
    """The partition: each of `request_slots` slots, then each of `snapshots` snapshots, has
    `per_request` consecutive rows."""

    request_slots: int
    snapshots: int
    per_request: int

    @property
    def count(self) -> int:
        """All rows."""
        return (self.request_slots + self.snapshots) * self.per_request

    def live(self, slot: int) -> int:
        """The first row of a request slot."""
        return slot * self.per_request

    def snapshot(self, index: int) -> int:
        """The first row of a snapshot."""
        return (self.request_slots + index) * self.per_request


def rows_per_request(contract: PreparedContract, programs: Sequence[Program]) -> int:
    """State rows that a request needs with these programs: the most that one of their graphs
    asks for, at least its live row."""
    selected = {program.name for program in programs}
    graphs = (graph for graph in contract.model.graphs if graph.name in selected)
    return max(1, *(graph.state_rows_per_request for graph in graphs))
