"""Which graphs wait for a lane's last completion: derived from each graph's own inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.contract import decode
from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import GraphContract, PendingToken, PreparedContract, ValueBinding
from helios.errors import ContractError
from helios.runtime.capacities import Capacities
from helios.runtime.feedback import feedback_inputs, is_host_fed
from helios.runtime.grammar_rules import takes_grammars
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.selection import select, selected_geometry
from helios.schema import contract_pb2 as pb
from tests.contract.sample import sample_contract
from tests.runtime.packing_bench import bind
from tests.runtime.sample_manifest import sample_manifest

CONTRACT = decode(sample_contract())
FED = [
    ValueSource.PENDING_TOKEN,
    ValueSource.GRAMMAR_MASK,
    ValueSource.PROPOSAL_TOKEN,
    ValueSource.PROPOSAL_COUNT,
    ValueSource.PROPOSAL_GENERATION,
    ValueSource.PROPOSAL_ENDPOINT,
    ValueSource.PROPOSAL_GRAMMAR_MASK,
]
CONSUMING = [Operation.RESUME, Operation.DECODE, Operation.SPECULATIVE, Operation.MIXED]


def graph(name: str, contract: PreparedContract = CONTRACT) -> GraphContract:
    return next(graph for graph in contract.model.graphs if graph.name == name)


def fed(source: ValueSource) -> ValueBinding:
    return bind("more", source, Indexing.ACTIVE_ROW)


@pytest.mark.clause("BIND-12")
@pytest.mark.parametrize("operation", CONSUMING, ids=lambda operation: operation.name)
@pytest.mark.parametrize("source", ValueSource, ids=lambda source: source.name)
def test_only_what_follows_from_emitted_tokens_makes_a_graph_wait(
    source: ValueSource, operation: Operation
) -> None:
    plain = replace(graph("decode.b1"), operation=operation)
    assert not is_host_fed(plain)
    made = replace(plain, bindings=(*plain.bindings, fed(source)))
    assert feedback_inputs(made) == ((fed(source),) if source in FED else ())
    # Lanes without a grammar have a mask that is always known.
    assert is_host_fed(made) == (source in FED and source is not ValueSource.GRAMMAR_MASK)


@pytest.mark.clause("BIND-12")
def test_a_pending_token_of_the_host_makes_its_graph_wait() -> None:
    own = graph("decode.b1")
    host = replace(own, pending_token=PendingToken(None, fed(ValueSource.PENDING_TOKEN)))
    assert is_host_fed(host)
    assert not is_host_fed(own)


@pytest.mark.clause("BIND-12")
@pytest.mark.parametrize(
    "operation", sorted(set(Operation) - {*CONSUMING}), ids=lambda operation: operation.name
)
def test_what_is_known_at_admission_makes_nobody_wait(operation: Operation) -> None:
    made = replace(
        graph("prefill.p8"), operation=operation, bindings=tuple(fed(source) for source in FED)
    )
    assert not is_host_fed(made)


@pytest.mark.clause("BIND-12")
def test_each_selected_graph_is_judged_by_itself() -> None:
    graphs = [
        replace(one, bindings=(*one.bindings, fed(ValueSource.PENDING_TOKEN)))
        if one.name in ("initialize.b4", "prefill.p8", "decode.b2")
        else one
        for one in CONTRACT.model.graphs
    ]
    contract = replace(CONTRACT, model=replace(CONTRACT.model, graphs=tuple(graphs)))
    manifest = decode_manifest(sample_manifest())
    selection = select(contract, manifest, Capacities(), 1 << 40)
    geometry = selected_geometry(contract, manifest, selection, kernel_path="null")
    assert {p.name: p.host_fed for p in geometry.programs} == {
        "initialize.b4": False,
        "prefill.p8": False,
        "prefill.p16": False,
        "decode.b1": False,
        "decode.b2": True,
        "decode.b4": False,
    }


def with_masks(*operations: Operation) -> list[GraphContract]:
    """The graphs, of which those of these operations take grammar masks."""
    return [
        replace(one, bindings=(*one.bindings, fed(ValueSource.GRAMMAR_MASK)))
        if one.operation in operations
        else one
        for one in CONTRACT.model.graphs
    ]


def test_grammars_need_a_mask_wherever_a_token_is_sampled() -> None:
    assert takes_grammars(with_masks(Operation.PREFILL, Operation.DECODE))
    assert not takes_grammars(with_masks(Operation.DECODE))
    assert not takes_grammars(with_masks(Operation.PREFILL))
    assert not takes_grammars(CONTRACT.model.graphs)
    assert not takes_grammars([])


# ---------------------------------------------------------------- pending tokens


def refused(change: object, name: str = "decode.b1") -> str:
    message = sample_contract()
    found = next(one for one in message.model.graphs if one.name == name)
    change(found, message)  # type: ignore[operator]
    with pytest.raises(ContractError) as raised:
        decode(message)
    return raised.value.where


def access(found: pb.GraphContract, mode: pb.AccessMode) -> None:
    next(one for one in found.accesses if one.view == "pending_token").mode = mode


OWNERS = [
    ("owner", lambda g, _: g.pending_token.Clear()),
    ("state_view", lambda g, _: setattr(g.pending_token, "state_view", "nothing")),
    # four bytes of the page table would do, but the graph must touch them
    ("state_view", lambda g, _: g.accesses.pop(0)),
    ("state_view", lambda g, _: access(g, pb.ACCESS_MODE_WRITE)),
    ("state_view", lambda g, _: access(g, pb.ACCESS_MODE_READ)),
    ("state_view", lambda g, _: setattr(g.pending_token, "state_view", "request")),
    (
        "host_binding.source",
        lambda g, _: g.pending_token.host_binding.CopyFrom(
            pb.ValueBinding(destination="x", source=pb.VALUE_SOURCE_SLOT, indexing=3)
        ),
    ),
    (
        "host_binding.destination",
        lambda g, _: g.pending_token.host_binding.CopyFrom(
            pb.ValueBinding(destination="slot", source=pb.VALUE_SOURCE_PENDING_TOKEN, indexing=3)
        ),
    ),
]


@pytest.mark.clause("BIND-12")
@pytest.mark.parametrize(("field", "change"), OWNERS, ids=[f"{i}" for i in range(len(OWNERS))])
def test_a_pending_token_has_one_owner_that_can_be_it(field: str, change: object) -> None:
    assert refused(change) == f"model.graphs[3].pending_token.{field}"


@pytest.mark.clause("BIND-12")
@pytest.mark.parametrize("name", ["initialize.b4", "prefill.p8", "decode.b1"])
def test_who_produces_the_pending_token_declares_the_write(name: str) -> None:
    index = [one.name for one in CONTRACT.model.graphs].index(name)
    where = refused(lambda g, _: access(g, pb.ACCESS_MODE_READ), name)
    assert where == f"model.graphs[{index}].pending_token.state_view"
