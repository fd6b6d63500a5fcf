"""Which captured programs serve: lower concurrency, narrower speculation, history drafting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from helios.contract import PreparedContract, decode
from helios.contract.enums import Operation, ValueSource
from helios.contract.model import GraphContract, ValueBinding
from helios.errors import ContractError
from helios.runtime.capacities import Capacities, choose_speculative_width
from helios.runtime.devices.null import NullDevice
from helios.runtime.manifest import Manifest, Program
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.selection import choose_programs, refuse_unsupported, select
from helios.schema import contract_pb2
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import sample_manifest, sample_weights

PLENTY = 1 << 40
COPIED = (
    ValueSource.PROPOSAL_TOKEN,
    ValueSource.PROPOSAL_COUNT,
    ValueSource.PROPOSAL_GENERATION,
    ValueSource.PROPOSAL_ENDPOINT,
)


@pytest.fixture(scope="module")
def contract() -> PreparedContract:
    return decode(sample_contract())


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return decode_manifest(sample_manifest())


@pytest.mark.clause("BOOT-1", "BOOT-7")
@pytest.mark.parametrize(("slots", "kept"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 4]), (4, [1, 2, 4])])
def test_decode_programs_up_to_the_smallest_that_covers_the_slots(
    manifest: Manifest, slots: int, kept: list[int]
) -> None:
    chosen = choose_programs(manifest, slots)
    assert [p.batch_capacity for p in chosen if p.operation is Operation.DECODE] == kept
    others = [p.name for p in chosen if p.operation is not Operation.DECODE]
    assert others == ["initialize.b4", "prefill.p8", "prefill.p16"]


@pytest.mark.clause("BOOT-6")
@pytest.mark.parametrize("operation", [Operation.INITIALIZE, Operation.PREFILL, Operation.DECODE])
def test_a_missing_operation_is_refused(manifest: Manifest, operation: Operation) -> None:
    programs = tuple(p for p in manifest.programs if p.operation is not operation)
    with pytest.raises(ContractError, match=f"no {operation.name} program"):
        choose_programs(replace(manifest, programs=programs), 1)


def test_uncovered_slots_and_other_operations_are_refused(manifest: Manifest) -> None:
    with pytest.raises(ContractError, match="no DECODE program of width 1 takes 5 lanes"):
        choose_programs(manifest, 5)
    foreign = replace(manifest.programs[0], name="vision", operation=Operation.VISION)
    with pytest.raises(ContractError, match="VISION"):
        refuse_unsupported((*manifest.programs, foreign))


def program(manifest: Manifest, lanes: int, width: int, draft: int) -> Program:
    return replace(
        manifest.programs[3],
        name=f"speculative.w{width}.b{lanes}",
        operation=Operation.SPECULATIVE,
        batch_capacity=lanes,
        draft_tokens=draft,
        token_capacity=width,
        packed_token_capacity=lanes * width,
    )


def speculating(
    contract: PreparedContract,
    manifest: Manifest,
    *,
    sources: Sequence[ValueSource] = COPIED,
    drafting: bool = True,
) -> tuple[PreparedContract, Manifest]:
    """The sample with speculation of widths 1, 3 and 5, each for 2 and 4 lanes."""
    added = [
        program(manifest, lanes, width, width - 1 if drafting else 0)
        for width in (1, 3, 5)
        for lanes in (2, 4)
    ]
    graphs = [
        replace(
            contract.model.graphs[3],
            name=one.name,
            operation=Operation.SPECULATIVE,
            bindings=tuple(bound(s) for s in sources) if one.token_capacity > 1 else (),
        )
        for one in added
    ]
    model = replace(contract.model, graphs=(*contract.model.graphs, *graphs))
    return (
        replace(contract, speculative_widths=(1, 3, 5), model=model),
        replace(manifest, programs=(*manifest.programs, *added)),
    )


def bound(source: ValueSource) -> ValueBinding:
    example = decode(sample_contract()).model.graphs[3].bindings[1]
    return replace(example, destination=source.name, source=source)


def names(programs: Sequence[Program]) -> list[str]:
    return [p.name for p in programs if p.operation is Operation.SPECULATIVE]


@pytest.mark.clause("BOOT-7")
@pytest.mark.parametrize(
    ("asked", "slots", "width", "kept"),
    [
        (None, 4, 5, [(1, 2), (1, 4), (3, 2), (3, 4), (5, 2), (5, 4)]),
        (5, 2, 5, [(1, 2), (3, 2), (5, 2)]),
        (4, 1, 3, [(1, 2), (3, 2)]),
        (3, 3, 3, [(1, 2), (1, 4), (3, 2), (3, 4)]),
        (1, 4, 1, [(1, 2), (1, 4)]),
        (0, 4, 0, []),
    ],
)
def test_speculative_width_can_be_lowered(
    contract: PreparedContract,
    manifest: Manifest,
    asked: int | None,
    slots: int,
    width: int,
    kept: list[tuple[int, int]],
) -> None:
    wide, captured = speculating(contract, manifest)
    chosen = select(wide, captured, Capacities(slots, speculative_width=asked), PLENTY)
    assert chosen.speculative_width == width
    assert names(chosen.programs) == [f"speculative.w{w}.b{lanes}" for w, lanes in kept]
    assert chosen.request_slots == slots


@pytest.mark.clause("BOOT-7")
@pytest.mark.parametrize("asked", [-1, 6])
def test_a_width_that_wasn_t_captured_is_refused(
    contract: PreparedContract, manifest: Manifest, asked: int
) -> None:
    wide, _ = speculating(contract, manifest)
    with pytest.raises(ContractError, match=rf"speculative width: {asked} asked for.*1, 3, 5"):
        choose_speculative_width(wide, asked)


def test_without_speculation_there_is_only_the_width_0(contract: PreparedContract) -> None:
    assert choose_speculative_width(contract, None) == choose_speculative_width(contract, 0) == 0
    with pytest.raises(ContractError, match=r"speculative width: 2 .* without speculation"):
        choose_speculative_width(contract, 2)


@pytest.mark.clause("BOOT-6")
def test_a_width_without_a_program_for_all_slots_is_refused(
    contract: PreparedContract, manifest: Manifest
) -> None:
    wide, captured = speculating(contract, manifest)
    short = replace(captured, programs=captured.programs[:-1])
    with pytest.raises(ContractError, match="no SPECULATIVE program of width 5 takes 4 lanes"):
        select(wide, short, Capacities(), PLENTY)


def test_selected_speculation_is_refused_until_it_runs(
    contract: PreparedContract, manifest: Manifest
) -> None:
    wide, captured = speculating(contract, manifest)
    with pytest.raises(ContractError, match=r"SPECULATIVE programs yet.*width of 0"):
        refuse_unsupported(select(wide, captured, Capacities(), PLENTY).programs)
    none = select(wide, captured, Capacities(speculative_width=0), PLENTY)
    refuse_unsupported(none.programs)


# ---------------------------------------------------------------- history drafting


@pytest.mark.clause("BOOT-8")
def test_history_drafting_needs_learned_speculation(contract: PreparedContract) -> None:
    with pytest.raises(ContractError, match="history drafting: needs learned speculation"):
        ModelRuntime.from_parts(
            contract,
            sample_manifest(),
            sample_weights(),
            capacities=Capacities(history_drafting=True),
            device=NullDevice(),
        )


@pytest.mark.clause("BOOT-8")
@pytest.mark.parametrize("width", [1, 0])
def test_history_drafting_needs_speculation_that_is_enabled(
    contract: PreparedContract, manifest: Manifest, width: int
) -> None:
    wide, captured = speculating(contract, manifest)
    asked = Capacities(speculative_width=width, history_drafting=True)
    with pytest.raises(ContractError, match="history drafting: needs learned speculation"):
        select(wide, captured, asked, PLENTY)


@pytest.mark.clause("BOOT-8")
def test_history_drafting_needs_programs_that_draft(
    contract: PreparedContract, manifest: Manifest
) -> None:
    wide, captured = speculating(contract, manifest, drafting=False)
    with pytest.raises(ContractError, match="no selected program drafts"):
        select(wide, captured, Capacities(history_drafting=True), PLENTY)


@pytest.mark.clause("BOOT-8")
@pytest.mark.parametrize("missing", COPIED, ids=lambda source: source.name)
def test_history_drafting_needs_copied_tokens_in_every_wider_graph(
    contract: PreparedContract, manifest: Manifest, missing: ValueSource
) -> None:
    wide, captured = speculating(contract, manifest)
    graphs = list(wide.model.graphs)
    lacking = next(i for i, g in enumerate(graphs) if g.name == "speculative.w3.b4")
    graphs[lacking] = _without(graphs[lacking], missing)
    broken = replace(wide, model=replace(wide.model, graphs=tuple(graphs)))
    asked = Capacities(history_drafting=True)
    with pytest.raises(ContractError) as raised:
        select(broken, captured, asked, PLENTY)
    assert raised.value.where == f"model.graphs[{lacking}].bindings"
    assert missing.name in raised.value.what
    assert "speculative.w3.b4" in raised.value.what
    # Where that graph isn't selected it doesn't matter.
    select(broken, captured, replace(asked, request_slots=2), PLENTY)


def _without(graph: GraphContract, source: ValueSource) -> GraphContract:
    return replace(graph, bindings=tuple(b for b in graph.bindings if b.source is not source))


@pytest.mark.clause("BOOT-8")
def test_history_drafting_with_all_it_needs_is_selected(
    contract: PreparedContract, manifest: Manifest
) -> None:
    wide, captured = speculating(contract, manifest)
    chosen = select(wide, captured, Capacities(history_drafting=True), PLENTY)
    assert chosen.speculative_width == 5


@pytest.mark.clause("BOOT-8")
def test_a_contract_has_no_place_for_a_history_preference() -> None:
    fields = [
        field.name
        for message in contract_pb2.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
    ]
    assert not [name for name in fields if "history" in name]
