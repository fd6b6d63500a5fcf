"""How many snapshots there are, what memory they take, and what follows for the geometry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helios.contract import PreparedContract
from helios.contract.enums import CacheRegionKind, Operation, ValueSource
from helios.errors import ContractError
from helios.runtime.capacities import Capacities, beside_cache_nbytes, page_nbytes, plan_memory
from helios.runtime.inspection import memory_report
from helios.runtime.manifest import BufferClass, LeadingCount, Manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.memory_fit import check_fits
from helios.runtime.selection import Selection, select, selected_geometry
from tests.model_parts import ModelParts, capture_tiny

PLENTY = 1 << 40
ONE_CONTEXT = 16  # pages of 32 tokens for 512
# Of the tiny llama: keys and values of two layers, two heads of 16 elements of two bytes.
PAGE_NBYTES = 2 * 2 * 2 * 16 * 2 * 32
Model = tuple[PreparedContract, Manifest]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ModelParts:
    return capture_tiny(tmp_path_factory.mktemp("checkpoints"), "llama")


@pytest.fixture(scope="module")
def model(parts: ModelParts) -> Model:
    return parts.contract, decode_manifest(parts.manifest)


def choose(model: Model, available: int = PLENTY, **asked: float) -> Selection:
    return select(*model, Capacities(**asked), available)  # type: ignore[arg-type]


def without(model: Model, *operations: Operation) -> Model:
    """The same without the programs of some operations."""
    contract, manifest = model
    programs = tuple(p for p in manifest.programs if p.operation not in operations)
    return contract, replace(manifest, programs=programs)


CASES = [
    # Two a slot beside 512 tokens a slot, which is a whole context.
    ({}, PLENTY, 64, 32 * ONE_CONTEXT),
    ({"request_slots": 3}, PLENTY, 6, 3 * ONE_CONTEXT),
    # A quarter of a quarter of what is available; at least one context is left.
    ({"request_slots": 4}, 4 * 24 * PAGE_NBYTES, 6, 18),
    ({"request_slots": 4}, 4 * 17 * PAGE_NBYTES, 1, ONE_CONTEXT),
    ({"request_slots": 4}, 0, 0, ONE_CONTEXT),
    # What is asked for holds both.
    ({"request_slots": 4, "cache_nbytes": 100 * PAGE_NBYTES}, PLENTY, 8, 92),
    ({"request_slots": 4, "cache_nbytes": 24 * PAGE_NBYTES}, PLENTY, 6, 18),
    ({"request_slots": 4, "cache_nbytes": ONE_CONTEXT * PAGE_NBYTES}, PLENTY, 0, ONE_CONTEXT),
    ({"cache_nbytes": 100 * PAGE_NBYTES, "snapshot_rows": 0}, PLENTY, 0, 100),
    ({"cache_nbytes": 100 * PAGE_NBYTES, "snapshot_rows": 60}, PLENTY, 60, 40),
    ({"request_slots": 4, "snapshot_rows": 3}, PLENTY, 3, 4 * ONE_CONTEXT),
]


@pytest.mark.clause("BOOT-7")
@pytest.mark.parametrize(("asked", "available", "snapshots", "pages"), CASES)
def test_snapshots_are_taken_out_of_the_cache(
    model: Model, asked: dict[str, float], available: int, snapshots: int, pages: int
) -> None:
    assert page_nbytes(model[1]) == PAGE_NBYTES
    chosen = choose(model, available, **asked)
    assert (chosen.snapshots, chosen.cache_pages) == (snapshots, pages)
    assert chosen.snapshot_nbytes == PAGE_NBYTES
    rows = chosen.plan.counts[LeadingCount.SNAPSHOT_ROWS]
    assert rows == chosen.request_slots + snapshots
    cache = chosen.plan.nbytes_by_class()[BufferClass.CACHE]
    assert cache == (pages + rows) * PAGE_NBYTES


def test_a_share_is_of_what_live_rows_leave_too(model: Model) -> None:
    beside = beside_cache_nbytes(model[1], 4)
    plan = plan_memory(model[1], {
        LeadingCount.REQUEST_SLOTS: 4, LeadingCount.CACHE_PAGES: 1, LeadingCount.SNAPSHOT_ROWS: 4,
    })  # fmt: skip
    assert beside == sum(plan.nbytes_by_class().values()) - PAGE_NBYTES
    available = beside + 2 * 80 * PAGE_NBYTES
    chosen = choose(model, available, request_slots=4, cache_share=0.5)
    assert (chosen.snapshots, chosen.cache_pages) == (8, 72)


@pytest.mark.parametrize("asked", [-1, 1 << 21])
def test_a_number_that_is_none_is_refused(model: Model, asked: int) -> None:
    with pytest.raises(ContractError, match=r"snapshots: .*0 to 1048576 can be"):
        choose(model, snapshot_rows=asked)


def test_snapshots_that_leave_no_context_are_refused(model: Model) -> None:
    with pytest.raises(ContractError, match=r"hold 15 pages beside 40\.0 KiB of snapshots"):
        choose(model, cache_nbytes=20 * PAGE_NBYTES, snapshot_rows=5)


def test_without_programs_for_them_there_are_none(model: Model) -> None:
    bare = without(model, Operation.SNAPSHOT)
    assert choose(bare).snapshots == 0
    assert choose(bare, snapshot_rows=0).snapshot_nbytes == 0
    with pytest.raises(ContractError, match="3 asked for, but the core is prepared without"):
        choose(bare, snapshot_rows=3)


@pytest.mark.clause("BIND-13")
@pytest.mark.parametrize("slots", [1, 4])
def test_a_request_has_the_rows_that_the_hungriest_selected_graph_asks_for(
    model: Model, slots: int
) -> None:
    contract, manifest = model
    # MIXED programs, which ask for most, serve two slots and more.
    rows = {Operation.MIXED: 5, Operation.PREFILL: 3}
    graphs = tuple(
        replace(graph, state_rows_per_request=rows.get(graph.operation, 1))
        for graph in contract.model.graphs
    )
    hungry = replace(contract, model=replace(contract.model, graphs=graphs))
    chosen = choose((hungry, manifest), request_slots=slots, snapshot_rows=7)
    per_request = 3 if slots == 1 else 5
    assert chosen.snapshot_nbytes == per_request * PAGE_NBYTES
    assert chosen.plan.counts[LeadingCount.SNAPSHOT_ROWS] == per_request * (slots + 7)


def test_the_geometry_says_what_there_is(model: Model) -> None:
    chosen = choose(model, request_slots=4, snapshot_rows=9)
    geometry = selected_geometry(*model, chosen, kernel_path="none")
    assert (geometry.snapshot_rows, geometry.snapshot_nbytes) == (9, PAGE_NBYTES)
    report = memory_report(model[1], model[0], Capacities(4, snapshot_rows=9), PLENTY)
    assert (report.snapshots, report.snapshot_nbytes) == (9, PAGE_NBYTES)


def rules_of(model: Model, **asked: int) -> tuple[object, ...]:
    rules = selected_geometry(*model, choose(model, **asked), kernel_path="none").history
    return (
        rules.starts_at_pages, rules.restores, rules.names_endpoint, rules.window_tokens,
        rules.record_tokens,
    )  # fmt: skip


def test_rules_follow_from_programs_and_bindings(model: Model) -> None:
    contract, _ = model
    assert rules_of(model) == (True, True, True, 0, 1)
    assert rules_of(model, snapshot_rows=0) == (True, True, True, 0, 1)
    for operation in (Operation.RESTORE, Operation.RESUME):
        assert rules_of(without(model, operation))[:3] == (True, False, True)
    assert rules_of(without(model, Operation.SNAPSHOT))[:3] == (True, False, False)
    for operation, place in ((Operation.INITIALIZE, 0), (Operation.SNAPSHOT, 2)):
        graphs = tuple(
            replace(
                graph,
                bindings=tuple(
                    binding
                    for binding in graph.bindings
                    if graph.operation is not operation
                    or binding.source is not ValueSource.CONSUMED_TOKENS
                ),
            )
            for graph in contract.model.graphs
        )
        silent = replace(contract, model=replace(contract.model, graphs=graphs))
        assert rules_of((silent, model[1]))[place] is False


def test_windows_and_records_are_those_of_the_regions(model: Model, tmp_path: Path) -> None:
    windowed = capture_tiny(tmp_path, "mistral")
    assert rules_of((windowed.contract, decode_manifest(windowed.manifest)))[3] == 24
    contract, manifest = model
    history, partial = contract.model.cache.regions
    compressed = replace(history, kind=CacheRegionKind.PAGED_LATENT, tokens_per_record=4)
    keys, values = history.planes[:2], history.planes[2:]
    windows = [
        replace(
            history, name=f"window {width}", kind=CacheRegionKind.SLIDING_WINDOW, planes=planes,
            tokens_per_record=0, window_tokens=width,
        )
        for width, planes in ((40, keys), (96, values))
    ]  # fmt: skip
    for regions, expected in (
        ((compressed, partial), (0, 4)),
        ((*windows, partial), (96, 1)),
        ((windows[0], replace(compressed, planes=values), partial), (0, 4)),
    ):
        cache = replace(contract.model.cache, regions=regions)
        changed = replace(contract, model=replace(contract.model, cache=cache))
        assert rules_of((changed, manifest))[3:] == expected


@pytest.mark.clause("BOOT-1", "BOOT-7")
@pytest.mark.parametrize(("slots", "mixed"), [(1, []), (2, [32, 128]), (32, [32, 128])])
def test_mixed_programs_need_two_slots(model: Model, slots: int, mixed: list[int]) -> None:
    chosen = choose(model, request_slots=slots)
    found = [p.packed_token_capacity for p in chosen.programs if p.operation is Operation.MIXED]
    assert found == mixed


def test_of_mixed_programs_those_up_to_the_first_that_covers_the_slots_serve(model: Model) -> None:
    contract, manifest = model
    large = next(p for p in manifest.programs if p.operation is Operation.MIXED)
    smaller = [replace(large, name=f"mixed.b{b}p32", batch_capacity=b) for b in (2, 8)]
    graph = next(g for g in contract.model.graphs if g.name == large.name)
    graphs = (*contract.model.graphs, *(replace(graph, name=p.name) for p in smaller))
    grown = (
        replace(contract, model=replace(contract.model, graphs=graphs)),
        replace(manifest, programs=(*manifest.programs, *smaller)),
    )

    def batches(slots: int, model: Model) -> list[int]:
        programs = choose(model, request_slots=slots).programs
        mixed = [p for p in programs if p.operation is Operation.MIXED]
        return sorted(p.batch_capacity for p in mixed if p.packed_token_capacity == 32)

    assert batches(2, grown) == [2]
    assert batches(3, grown) == [2, 8]
    assert batches(9, grown) == [2, 8, 32]
    # They needn't take every slot: what doesn't fit decodes apart.
    manifest = replace(grown[1], programs=tuple(p for p in grown[1].programs if p is not large))
    assert batches(9, (grown[0], manifest)) == [2, 8]


def test_the_cache_that_a_refusal_names_fits(model: Model) -> None:
    """Live state rows lie in the cache's buffers, and what is asked for doesn't pay for them."""
    live = 32 * PAGE_NBYTES
    beside = beside_cache_nbytes(model[1], 32)
    for left in (3 << 20, (3 << 20) - 1, (3 << 20) - live + 1, (3 << 20) - live):
        available = beside + left
        chosen = choose(model, available, cache_nbytes=1 << 30)
        named = f"Ask for {left >> 20} MiB or less"
        with pytest.raises(ContractError, match=named):
            check_fits(chosen, available, Capacities(cache_nbytes=1 << 30), holds_weights=True)
        asked = Capacities(cache_nbytes=left >> 20 << 20)
        fitting = select(*model, asked, available)
        check_fits(fitting, available, asked, holds_weights=True)
