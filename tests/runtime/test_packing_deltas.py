"""Page tables and histograms: only what is new travels, shifted views, what may not overlap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import PageTableView
from helios.errors import ContractError, ExecutionError
from helios.runtime.rounds import LaneExtras, LaneWork
from tests.contract.sample import PAGE_TOKENS
from tests.runtime.packing_bench import (
    CACHE_PAGES,
    HISTOGRAM_TOKENS,
    PAGES,
    SLOTS,
    Bench,
    Delta,
    Graph,
    admission,
    bench,
    bind,
    lane,
)

V, Ix, Op = ValueSource, Indexing, Operation
TABLE = Delta("page_table", PAGES + 2, SLOTS * PAGES)
DECODE = Graph(Op.DECODE, (bind("d0", V.PAGE_TABLE, Ix.PHYSICAL_REQUEST_ROW),), packed_tokens=4)
HISTOGRAM = bind("h", V.PROMPT_HISTOGRAM, Ix.PHYSICAL_REQUEST_ROW)
INITIALIZE = Graph(Op.INITIALIZE, (HISTOGRAM,), target_tokens=0, packed_tokens=0)


class Tables:
    """Applies each round's deltas to tables, as the device's scatter launches do."""

    def __init__(self, made: Bench, destinations: dict[str, Delta]) -> None:
        self.made = made
        self._destinations = destinations
        self._round = 0
        self.tables = {
            delta.table: np.full((SLOTS, delta.row), -1, np.int32)
            for delta in destinations.values()
        }

    def pack(self, lanes: list[LaneWork], program: int = 0, *names: str) -> int:
        """The number of entries that a round sent to the destinations (all of them)."""
        self._round += 1
        frame = self._round % 2
        self.made.packer.pack(program, frame, lanes)
        sent = 0
        for name in names or self._destinations:
            count = int(self.made.elements(f"{name}.count", frame)[0])
            index = self.made.elements(f"{name}.index", frame)[:count]
            value = self.made.elements(f"{name}.value", frame)[:count]
            self.tables[self._destinations[name].table].flat[index] = value
            sent += count
        return sent

    def pack_ahead(self, lanes: list[LaneWork]) -> None:
        """For the next call of `pack`."""
        self.made.packer.pack_ahead(0, (self._round + 1) % 2, lanes)

    def row(self, slot: int, table: str = "page_table") -> list[int]:
        return list(self.tables[table][slot].tolist())


def paged(
    graphs: list[Graph] | None = None, views: list[PageTableView] | None = None, **more: Delta
) -> Tables:
    destinations = {"d0": TABLE, **more}
    return Tables(bench(graphs or [DECODE], destinations, views=views), destinations)


def on_pages(slot: int, pages: list[int], generation: int = 1) -> LaneWork:
    start = max(len(pages) * PAGE_TOKENS - 1, 0)
    return lane(slot, generation, tokens=(), start=start, pages=tuple(pages))


@pytest.mark.clause("BIND-10")
def test_only_new_page_entries_are_uploaded() -> None:
    pages = paged()
    assert pages.pack([on_pages(2, [7, 8])]) == 2
    assert pages.pack([on_pages(2, [7, 8])]) == 0
    assert pages.pack([on_pages(2, [7, 8, 9]), on_pages(0, [1])]) == 2
    assert pages.row(2) == [7, 8, 9, *[-1] * 5]
    assert pages.row(0) == [1, *[-1] * 7]


@pytest.mark.clause("BIND-10")
def test_a_round_that_was_packed_ahead_counts_once_it_is_packed() -> None:
    pages = paged()
    lanes = [on_pages(2, [7, 8])]
    pages.pack_ahead(lanes)
    pages.pack_ahead(lanes)
    assert pages.pack(lanes) == 2
    assert pages.pack([on_pages(2, [7, 8])]) == 0
    pages.pack_ahead([on_pages(2, [7, 8, 9])])
    assert pages.pack([on_pages(2, [7, 8, 5])]) == 1, "what was packed ahead didn't come"
    assert pages.row(2)[:3] == [7, 8, 5]


def test_a_round_that_was_packed_ahead_isn_t_written_again() -> None:
    pages = paged()
    lanes = [on_pages(2, [7, 8])]
    pages.pack_ahead(lanes)
    pages.made.elements("d0.value", 1)[:2] = 5, 6
    assert pages.pack(lanes) == 2
    assert pages.row(2)[:2] == [5, 6]


@pytest.mark.clause("BIND-10")
def test_a_new_generation_uploads_everything_again() -> None:
    pages = paged()
    assert pages.pack([on_pages(2, [7, 8])]) == 2
    assert pages.pack([on_pages(2, [3, 4], generation=2)]) == 2
    assert pages.row(2)[:3] == [3, 4, -1]
    assert pages.pack([on_pages(2, [3, 4], generation=2)]) == 0


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_table_always_covers_the_lanes_of_a_round(data: st.DataObject) -> None:
    pages = paged()
    lists: dict[int, tuple[int, list[int]]] = {slot: (1, []) for slot in range(SLOTS)}
    for _ in range(data.draw(st.integers(1, 12))):
        slots = data.draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=4, unique=True))
        fresh = 0
        lanes = []
        for slot in slots:
            generation, held = lists[slot]
            if not held or data.draw(st.integers(0, 4)) == 0:
                generation, held = generation + 1, []
            more = data.draw(
                st.lists(
                    st.integers(0, CACHE_PAGES - 1),
                    min_size=0 if held else 1,
                    max_size=PAGES - len(held),
                )
            )
            fresh += len(more)
            lists[slot] = (generation, [*held, *more])
            lanes.append(on_pages(slot, lists[slot][1], generation))
        assert pages.pack(lanes) == fresh
        for slot in slots:
            held = lists[slot][1]
            assert pages.row(slot)[: len(held)] == held


BAD_PAGES = [
    (lane(1, tokens=(), start=4, pages=(1,)), "has 1 pages, which don't hold 5 tokens"),
    (lane(1, tokens=(), pages=range(PAGES + 1)), "has 7 pages, but 0 are uploaded and 6 fit"),
    (lane(1, tokens=(), pages=(3, CACHE_PAGES)), "names page 40, there are 40"),
    (lane(1, tokens=(), pages=(-1,)), "names page -1"),
]


@pytest.mark.parametrize(("work", "match"), BAD_PAGES, ids=[m for _, m in BAD_PAGES])
def test_page_lists_that_can_t_be_are_refused(work: LaneWork, match: str) -> None:
    with pytest.raises(ExecutionError, match=rf"^p, lane 1 \(slot 1, .*\), input d0: {match}"):
        paged().pack([on_pages(0, [5]), work])


def test_a_shrunken_page_list_is_refused() -> None:
    pages = paged()
    pages.pack([on_pages(1, [5, 6])])
    with pytest.raises(ExecutionError, match="has 1 pages, but 2 are uploaded"):
        pages.pack([on_pages(1, [5])])


@pytest.mark.clause("BIND-10")
def test_a_refused_round_leaves_nothing_remembered() -> None:
    pages = paged()
    with pytest.raises(ExecutionError, match="names page 40"):
        pages.pack([on_pages(0, [3]), on_pages(1, [CACHE_PAGES])])
    assert pages.pack([on_pages(0, [3])]) == 1


@pytest.mark.parametrize("operation", [Op.INITIALIZE, Op.RESTORE, Op.RESUME, Op.SNAPSHOT])
def test_pages_cover_the_endpoint_where_nothing_is_consumed(operation: Operation) -> None:
    pages = paged([replace(DECODE, operation=operation, packed_tokens=0)])
    whole = lane(0, tokens=(), start=2 * PAGE_TOKENS, pages=(4, 5))
    assert pages.pack([whole]) == 2
    with pytest.raises(ExecutionError, match="has 2 pages, which don't hold 9 tokens"):
        pages.pack([whole._replace(slot=1, start=2 * PAGE_TOKENS + 1)])


# ---------------------------------------------------------------- shifted views


def test_a_shifted_view_puts_pages_behind_its_offset() -> None:
    pages = paged(views=[PageTableView("v", "d0", 2)])
    assert pages.pack([on_pages(1, [7, 8, 9])]) == 3
    assert pages.row(1) == [-1, -1, 7, 8, 9, -1, -1, -1]
    assert pages.pack([on_pages(1, [7, 8, 9, 3])]) == 1
    assert pages.row(1) == [-1, -1, 7, 8, 9, 3, -1, -1]


def test_a_table_and_its_shifted_draft_are_each_brought_up_to_date() -> None:
    draft = replace(DECODE.bindings[0], destination="d1")
    both = replace(DECODE, name="both", bindings=(*DECODE.bindings, draft))
    views = [PageTableView("pages", "d0", 0), PageTableView("draft", "d1", 1)]
    pages = paged([DECODE, both], views, d1=Delta("draft_table", PAGES + 1, SLOTS * PAGES))
    assert pages.pack([on_pages(0, [7])], 0, "d0") == 1
    assert pages.pack([on_pages(0, [7, 8])], 1) == 1 + 2
    assert pages.row(0)[:3] == [7, 8, -1]
    assert pages.row(0, "draft_table")[:4] == [-1, 7, 8, -1]


def test_two_destinations_of_one_place_share_what_is_remembered() -> None:
    other = replace(DECODE, name="q", bindings=(replace(DECODE.bindings[0], destination="d1"),))
    pages = paged([DECODE, other], d1=TABLE)
    assert pages.pack([on_pages(0, [7, 8])], 0, "d0") == 2
    assert pages.pack([on_pages(0, [7, 8])], 1, "d1") == 0
    assert pages.pack([on_pages(0, [7, 8, 9])], 1, "d1") == 1
    assert pages.pack([on_pages(0, [7, 8, 9])], 0, "d0") == 0
    assert pages.row(0)[:4] == [7, 8, 9, -1]


WIDE = Delta("page_table", 2 * PAGES, SLOTS * PAGES)


@pytest.mark.parametrize(
    ("views", "where"),
    [
        ([], r"graphs\[0\]\.bindings\[0\]\.destination: no page-table view"),
        (
            [PageTableView("a", "d0", 0), PageTableView("b", "d0", 1)],
            r"page_tables\[1\]\.page_offset",
        ),
        (
            [PageTableView("a", "d0", 0), PageTableView("b", "d1", PAGES - 1)],
            r"page_tables\[1\]\.page_offset: .*overwrite each other",
        ),
    ],
    ids=["none", "two of one destination", "two of one table"],
)
def test_views_that_contradict_each_other_are_refused(
    views: list[PageTableView], where: str
) -> None:
    with pytest.raises(ContractError, match=where):
        bench([DECODE], {"d0": WIDE, "d1": WIDE}, views=views)


def test_views_of_one_table_may_lie_side_by_side() -> None:
    both = (*DECODE.bindings, replace(DECODE.bindings[0], destination="d1"))
    views = [PageTableView("a", "d0", 0), PageTableView("b", "d1", PAGES)]
    destinations = {"d0": WIDE, "d1": WIDE}
    pages = Tables(bench([replace(DECODE, bindings=both)], destinations, views=views), destinations)
    assert pages.pack([on_pages(3, [7, 8])]) == 4
    assert pages.row(3) == [7, 8, *[-1] * 4, 7, 8, *[-1] * 4]


def test_a_graph_sends_no_entries_twice() -> None:
    both = (*DECODE.bindings, replace(DECODE.bindings[0], destination="d1"))
    with pytest.raises(ContractError, match=r"bindings\[1\]\.destination: 'd1' sends what 'd0'"):
        bench([replace(DECODE, bindings=both)], {"d0": TABLE, "d1": TABLE})


def test_page_ids_are_not_shifted() -> None:
    graph = replace(DECODE, bindings=(replace(DECODE.bindings[0], offset=5),))
    with pytest.raises(ContractError, match=r"bindings\[0\]\.offset: is 5, but page ids take none"):
        bench([graph], {"d0": TABLE})


@pytest.mark.clause("BIND-10")
@pytest.mark.parametrize(
    ("graph", "delta", "needed"),
    [
        (DECODE, Delta("t", PAGES, 4 * PAGES), 4 * PAGES),
        # 4 lanes of at most 24 different tokens
        (INITIALIZE, Delta("t", HISTOGRAM_TOKENS, 4 * 24), 4 * 24),
    ],
    ids=["pages", "histogram"],
)
def test_staging_holds_what_any_round_may_send(graph: Graph, delta: Delta, needed: int) -> None:
    destinations = dict.fromkeys(("d0", "h"), delta)
    bench([graph], destinations)
    small = replace(delta, entries=needed - 1)
    with pytest.raises(ContractError, match=rf"bindings\[0\]\.destination: {needed - 1} entries"):
        bench([graph], dict.fromkeys(destinations, small))


# ---------------------------------------------------------------- histograms


def with_history(slot: int, history: tuple[int, ...] | None, generation: int = 1) -> LaneWork:
    extras = LaneExtras(history=history)
    return lane(slot, generation, tokens=(), extras=extras)


@pytest.mark.clause("BIND-10")
def test_a_histogram_is_sent_once_for_each_generation() -> None:
    destinations = {"h": Delta("histogram", HISTOGRAM_TOKENS, 4 * 24)}
    made = Tables(bench([INITIALIZE], destinations), destinations)
    # Tokens past the histogram are input-only: never sampled, not counted.
    assert made.pack([with_history(1, (3, 4, 3, 50))]) == 2
    assert made.row(1, "histogram")[2:6] == [-1, 2, 1, -1]
    assert made.pack([with_history(1, None)]) == 0
    assert made.pack([with_history(1, (5,), generation=2), with_history(0, (6,))]) == 2
    with pytest.raises(ExecutionError, match=r"lane 1 \(slot 2, .*input h: has no history"):
        made.pack([with_history(3, (7,)), with_history(2, None)])
    assert made.pack([with_history(3, (7,))]) == 1


@pytest.mark.clause("BIND-10")
def test_who_is_admitted_again_where_it_stands_has_its_histograms_sent_again() -> None:
    destinations = {"h": Delta("histogram", HISTOGRAM_TOKENS, 4 * 24)}
    made = Tables(bench([INITIALIZE], destinations), destinations)
    penalised = admission(frequency_penalty=0.5)
    first = with_history(1, (7, 3))._replace(admission=penalised)
    given = with_history(1, (7, 3, 9, 3))._replace(admission=replace(penalised, emitted=2))
    assert [made.pack([one]) for one in (first, first, given, given)] == [2, 0, 3, 0]
    assert made.row(1, "histogram")[2:10] == [-1, 2, -1, -1, -1, 1, -1, 1]


@pytest.mark.clause("BIND-5")
def test_nothing_is_counted_for_who_looks_at_no_counts() -> None:
    """A plain request brings no history; whoever has penalties must."""
    outputs = bind("o", V.OUTPUT_HISTOGRAM, Ix.PHYSICAL_REQUEST_ROW)
    destinations = {
        "h": Delta("histogram", HISTOGRAM_TOKENS, 4 * 24),
        "o": Delta("outputs", HISTOGRAM_TOKENS, 4 * 24),
    }
    graph = replace(INITIALIZE, bindings=(HISTOGRAM, outputs))
    made = Tables(bench([graph], destinations), destinations)
    plain = with_history(0, None)._replace(admission=admission())
    assert made.pack([plain]) == 0
    penalised = replace(admission(frequency_penalty=0.5), emitted=2)
    readmitted = with_history(1, (7, 3, 9, 3))._replace(admission=penalised)
    assert made.pack([plain, readmitted]) == 3 + 2
    assert made.row(1, "histogram")[2:10] == [-1, 2, -1, -1, -1, 1, -1, 1]
    assert made.row(1, "outputs")[2:10] == [-1, 1, -1, -1, -1, -1, -1, 1]
    with pytest.raises(ExecutionError, match="input h: has no history to look back at"):
        made.pack([with_history(2, None)._replace(admission=penalised)])
