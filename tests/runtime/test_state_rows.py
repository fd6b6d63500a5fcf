"""State rows: how many a request has, and how they are shared out to slots and snapshots."""

from __future__ import annotations

import pytest

from helios.contract import PreparedContract, decode
from helios.contract.enums import Indexing, Operation, ValueSource
from helios.runtime.capacities import Capacities
from helios.runtime.manifest import DType, LeadingCount, Manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.selection import select
from helios.runtime.state_rows import StateRows, rows_per_request
from helios.schema import contract_pb2 as pb
from helios.schema import execution_pb2
from tests.contract.sample import sample_contract
from tests.runtime.packing_bench import SLOTS, SNAPSHOTS, Graph, Staged, bench, bind, lane
from tests.runtime.sample_manifest import sample_manifest

ROW_NBYTES = 24


def recurrent(**rows: int) -> tuple[PreparedContract, Manifest]:
    """The sample with a recurrent region; graphs named with underscores need so many rows."""
    message = sample_contract()
    message.model.cache.regions.add(
        name="state", kind=pb.CACHE_REGION_KIND_RECURRENT, planes=["cache.state"]
    )
    for graph in message.model.graphs:
        graph.state_rows_per_request = rows.get(graph.name.replace(".", "_"), 1)
    manifest = sample_manifest()
    manifest.buffers.add(
        name="cache.state",
        buffer_class=execution_pb2.BUFFER_CLASS_CACHE,
        dtype=execution_pb2.DTYPE_F32,
        packing=execution_pb2.PACKING_PLAIN,
        leading=execution_pb2.LEADING_COUNT_SNAPSHOT_ROWS,
        shape=[ROW_NBYTES // 4],
        nbytes=ROW_NBYTES,
    )
    return decode(message), decode_manifest(manifest)


@pytest.mark.clause("BIND-13")
@pytest.mark.parametrize(
    ("slots", "wanted"),
    [(1, 2), (2, 3), (4, 5)],
    ids=["decode.b1 alone", "decode.b2 too", "decode.b4 too"],
)
def test_the_most_that_a_selected_graph_needs_is_backed(slots: int, wanted: int) -> None:
    contract, manifest = recurrent(prefill_p8=2, decode_b2=3, decode_b4=5)
    selection = select(contract, manifest, Capacities(request_slots=slots), 1 << 40)
    assert rows_per_request(contract, selection.programs) == wanted
    assert selection.plan.counts[LeadingCount.SNAPSHOT_ROWS] == slots * wanted
    state = next(b for b in selection.plan.buffers if b.buffer.name == "cache.state")
    assert state.shape == (slots * wanted, ROW_NBYTES // 4)
    assert state.nbytes == slots * wanted * ROW_NBYTES


def test_a_request_has_its_live_row_even_where_no_graph_asks() -> None:
    contract, manifest = recurrent(**dict.fromkeys(["initialize_b4", "decode_b1"], 0))
    assert rows_per_request(contract, manifest.programs[:1]) == 1


@pytest.mark.clause("BIND-13")
def test_slots_come_first_and_rows_of_one_owner_are_consecutive() -> None:
    rows = StateRows(request_slots=4, snapshots=3, per_request=2)
    live = [rows.live(slot) + i for slot in range(4) for i in range(2)]
    kept = [rows.snapshot(index) + i for index in range(3) for i in range(2)]
    assert live + kept == list(range(rows.count))


@pytest.mark.clause("BIND-13")
def test_packing_counts_rows_of_the_selected_graphs_alone() -> None:
    bindings = (
        bind("live", ValueSource.LIVE_STATE_ROW, Indexing.ACTIVE_ROW),
        bind("source", ValueSource.RESTORE_SOURCE, Indexing.ACTIVE_ROW),
        # another row of the same snapshot; what isn't there stays -1
        bind("second", ValueSource.RESTORE_SOURCE, Indexing.ACTIVE_ROW, offset=1),
    )
    graphs = [
        Graph(Operation.RESUME, bindings, packed_tokens=0, state_rows=2, name="resume"),
        Graph(Operation.SPECULATIVE, (), state_rows=9, name="wide"),
    ]
    destinations = dict.fromkeys(("live", "source", "second"), Staged(DType.I32, (4,)))
    lanes = [lane(3, tokens=(), restore_row=SNAPSHOTS - 1), lane(1, tokens=())]
    made = bench(graphs, destinations, selected=["resume"])
    made.packer.pack(0, 0, lanes)
    assert made.elements("live")[:2].tolist() == [6, 2]
    assert made.elements("source")[:2].tolist() == [(SLOTS + SNAPSHOTS - 1) * 2, -1]
    assert made.elements("second")[:2].tolist() == [(SLOTS + SNAPSHOTS - 1) * 2 + 1, -1]
    made = bench(graphs, destinations)
    made.packer.pack(0, 0, lanes)
    assert made.elements("live")[:2].tolist() == [27, 9]
