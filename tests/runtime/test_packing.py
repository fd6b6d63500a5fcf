"""Packing: every source under every indexing against a naive packer, refusals, page uploads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.contract import decode
from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import GraphContract, PageTableView, PendingToken, ValueBinding
from helios.errors import ContractError, ExecutionError
from helios.runtime.device import MemoryPlan, PlannedBuffer
from helios.runtime.manifest import (
    Buffer,
    BufferClass,
    DeltaDestination,
    Destination,
    DType,
    LeadingCount,
    Manifest,
    Packing,
    Program,
    StagedDestination,
)
from helios.runtime.packing import Packer
from helios.runtime.rounds import LaneAdmission, LaneWork, SamplingParameters
from tests.contract.sample import PAGE_TOKENS, sample_contract

SLOTS, LANES, TOKENS, TABLE_PAGES, CACHE_PAGES = 6, 4, 12, 5, 40
UNTOUCHED = 77
ROUND = [ValueSource.LIVE_ROW_COUNT, ValueSource.LIVE_TOKEN_COUNT, ValueSource.CONSTANT]
LANE = [
    ValueSource.SLOT,
    ValueSource.GENERATION,
    ValueSource.QUERY_LENGTH,
    ValueSource.SAMPLING_DECISION,
    ValueSource.CONSUMED_TOKENS,
    ValueSource.EMITTED_TOKENS,
    ValueSource.OUTPUT_LIMIT,
    ValueSource.TOP_K,
]
REAL = [ValueSource.TEMPERATURE, ValueSource.TOP_P, ValueSource.MIN_P]
WIDE = [ValueSource.SEED, ValueSource.EOS_IDS]
TOKEN = [ValueSource.PROMPT_TOKEN, ValueSource.PROMPT_POSITION]
ROWS = [Indexing.SUBMISSION_ROW, Indexing.ACTIVE_ROW, Indexing.PHYSICAL_REQUEST_ROW]


def bound(
    source: ValueSource, indexing: Indexing, *, offset: int = 0, padding: int = 0, constant: int = 0
) -> ValueBinding:
    return ValueBinding("", source, indexing, offset, padding, constant, "")


def allowed_indexings(source: ValueSource) -> list[Indexing]:
    if source in TOKEN:
        return [Indexing.PACKED_TOKEN]
    rows = [*ROWS, Indexing.PACKED_TOKEN]
    return [Indexing.SCALAR, *rows] if source in ROUND else rows


@st.composite
def bindings(draw: st.DrawFn) -> ValueBinding:
    source = draw(st.sampled_from([*ROUND, *LANE, *REAL, *WIDE, *TOKEN]))
    shifts = source not in REAL and source not in WIDE
    return bound(
        source,
        draw(st.sampled_from(allowed_indexings(source))),
        offset=draw(st.integers(-1000, 1000)) if shifts else 0,
        padding=draw(st.integers(-1000, 1000)) if source is not ValueSource.SEED else 3,
        constant=draw(st.integers(-1000, 1000)) if source is ValueSource.CONSTANT else 0,
    )


def element(source: ValueSource) -> tuple[DType, int]:
    if source in REAL:
        return DType.F32, 1
    return {ValueSource.SEED: (DType.U32, 2), ValueSource.EOS_IDS: (DType.I32, 16)}.get(
        source, (DType.I32, 1)
    )


@dataclass
class Bench:
    """A packer over bindings of one program, with the staging it writes."""

    packer: Packer
    staging: dict[tuple[int, int], np.ndarray]
    bindings: list[ValueBinding]

    def rows(self, index: int, frame: int) -> np.ndarray:
        dtype, columns = element(self.bindings[index].source)
        kind = {DType.F32: np.float32, DType.U32: np.uint32, DType.I32: np.int32}[dtype]
        return self.staging[index, frame].view(kind).reshape(-1, columns)


def make_buffer(name: str, dtype: DType, *shape: int, leading: bool = False) -> Buffer:
    kind = BufferClass.STATE if leading else BufferClass.INPUT
    count = LeadingCount.REQUEST_SLOTS if leading else LeadingCount.FIXED
    nbytes = int(np.prod(shape)) * 4
    return Buffer(name, kind, dtype, Packing.PLAIN, count, shape, nbytes, 0, "")


def bench(
    chosen: list[ValueBinding],
    operation: Operation = Operation.PREFILL,
    *,
    rows: int = TOKENS,
    views: tuple[PageTableView, ...] | None = None,
    pending: PendingToken | None = None,
    dtype: DType | None = None,
) -> Bench:
    named = [replace(binding, destination=f"d{i}") for i, binding in enumerate(chosen)]
    buffers = []
    destinations: dict[str, Destination] = {}
    for i, binding in enumerate(named):
        kind, columns = element(binding.source)
        shape = (rows, columns) if columns > 1 else (rows,)
        buffers.append(make_buffer(f"in.d{i}", dtype or kind, *shape))
        destinations[f"d{i}"] = StagedDestination(f"d{i}", i)
    pages = [b for b in named if b.source is ValueSource.PAGE_TABLE]
    for binding in pages:
        first = len(buffers)
        buffers += [
            make_buffer("page_table", DType.I32, TABLE_PAGES, leading=True),
            make_buffer("count", DType.I32, 1),
            make_buffer("index", DType.I32, LANES * TABLE_PAGES),
            make_buffer("value", DType.I32, LANES * TABLE_PAGES),
        ]
        destinations[binding.destination] = DeltaDestination(
            binding.destination, first, first + 1, first + 2, first + 3
        )
    contract = decode(sample_contract())
    graph = GraphContract("p", operation, tuple(named), (), (), pending, None, 1, 0)
    if views is None:
        views = tuple(PageTableView(f"v{i}", b.destination, 0) for i, b in enumerate(pages))
    cache = replace(contract.model.cache, page_tables=views)
    contract = replace(contract, model=replace(contract.model, graphs=(graph,), cache=cache))
    program = Program("p", operation, LANES, 0, 1, TOKENS, (), (), "", (), ())
    manifest = Manifest("", "cpu", tuple(buffers), (program,), (), destinations, {}, 0)
    planned = []
    staging = {}
    for i, buffer in enumerate(buffers):
        leading = buffer.leading is LeadingCount.REQUEST_SLOTS
        shape = (SLOTS, *buffer.shape) if leading else buffer.shape
        planned.append(PlannedBuffer(buffer, shape, int(np.prod(shape)) * 4))
        for frame in (0, 1):
            staging[i, frame] = np.full(int(np.prod(shape)), UNTOUCHED, np.int32).view(np.uint8)
    plan = MemoryPlan(tuple(planned), {LeadingCount.REQUEST_SLOTS: SLOTS}, 0)
    packer = Packer(
        contract,
        manifest,
        plan,
        (program,),
        lambda buffer, frame: staging[buffer, frame],
        request_slots=SLOTS,
        cache_pages=CACHE_PAGES,
    )
    return Bench(packer, staging, named)


@st.composite
def rounds(draw: st.DrawFn, operation: Operation) -> list[LaneWork]:
    slots = draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=LANES, unique=True))
    lanes = []
    for slot in slots:
        length = draw(st.integers(1, TOKENS // LANES)) if operation is Operation.PREFILL else 0
        admission = LaneAdmission(
            SamplingParameters(
                temperature=draw(st.floats(0, 2, width=32)),
                top_k=draw(st.integers(0, 50)),
                top_p=draw(st.floats(0, 1, width=32)),
                min_p=draw(st.floats(0, 1, width=32)),
                seed=draw(st.integers(0, 2**64 - 1)),
            ),
            output_limit=draw(st.integers(1, 10**6)),
            emitted=draw(st.integers(0, 100)),
            eos_ids=tuple(draw(st.lists(st.integers(0, 49), max_size=16))),
        )
        lanes.append(
            LaneWork(
                slot=slot,
                generation=draw(st.integers(1, 1000)),
                start=draw(st.integers(0, 1000)),
                tokens=tuple(draw(st.lists(st.integers(0, 49), min_size=length, max_size=length))),
                sample=draw(st.booleans()),
                pages=(),
                admission=admission,
            )
        )
    return lanes


def naive_value(binding: ValueBinding, lanes: list[LaneWork], lane: int, token: int) -> list[float]:
    """The value of a binding for one token of one lane, spelled out."""
    work = lanes[lane]
    admission = work.admission
    assert admission is not None
    sampling = admission.sampling
    decode_round = not any(len(w.tokens) for w in lanes)
    lengths = [1 if decode_round else len(w.tokens) for w in lanes]
    source = binding.source
    if source is ValueSource.SEED:
        return [sampling.seed % 2**32, sampling.seed // 2**32]
    if source is ValueSource.EOS_IDS:
        return [*admission.eos_ids] + [-1] * (16 - len(admission.eos_ids))
    plain = {
        ValueSource.LIVE_ROW_COUNT: lambda: len(lanes),
        ValueSource.LIVE_TOKEN_COUNT: lambda: sum(lengths),
        ValueSource.CONSTANT: lambda: binding.constant,
        ValueSource.SLOT: lambda: work.slot,
        ValueSource.GENERATION: lambda: work.generation,
        ValueSource.QUERY_LENGTH: lambda: lengths[lane],
        ValueSource.SAMPLING_DECISION: lambda: 1 if work.sample else 0,
        ValueSource.CONSUMED_TOKENS: lambda: work.start,
        ValueSource.EMITTED_TOKENS: lambda: admission.emitted,
        ValueSource.OUTPUT_LIMIT: lambda: admission.output_limit,
        ValueSource.TOP_K: lambda: sampling.top_k,
        ValueSource.TEMPERATURE: lambda: sampling.temperature,
        ValueSource.TOP_P: lambda: sampling.top_p,
        ValueSource.MIN_P: lambda: sampling.min_p,
        ValueSource.PROMPT_TOKEN: lambda: work.tokens[token],
        ValueSource.PROMPT_POSITION: lambda: work.start + token,
    }
    return [plain[source]() + binding.offset]


def naive_pack(binding: ValueBinding, lanes: list[LaneWork], rows: np.ndarray) -> np.ndarray:
    """What `rows` must hold after the round, written element by element."""
    expected = rows.copy()
    if binding.indexing is Indexing.SCALAR:
        expected[0] = naive_value(binding, lanes, 0, 0)
    elif binding.indexing is Indexing.PACKED_TOKEN:
        at = 0
        for lane, work in enumerate(lanes):
            for token in range(len(work.tokens) or 1):
                expected[at] = naive_value(binding, lanes, lane, token)
                at += 1
    else:
        if binding.indexing is Indexing.SUBMISSION_ROW:
            expected[:LANES] = binding.padding
        for lane, work in enumerate(lanes):
            physical = binding.indexing is Indexing.PHYSICAL_REQUEST_ROW
            expected[work.slot if physical else lane] = naive_value(binding, lanes, lane, 0)
    return expected


@pytest.mark.clause("BIND-8", "BIND-9")
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_rounds_pack_as_the_naive_packer_does(data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from([Operation.PREFILL, Operation.DECODE]))
    chosen = data.draw(st.lists(bindings(), min_size=1, max_size=6))
    if operation is Operation.DECODE:
        chosen = [binding for binding in chosen if binding.source not in TOKEN]
    made = bench(chosen, operation)
    for number in range(data.draw(st.integers(1, 3))):
        frame = number % 2
        lanes = data.draw(rounds(operation))
        expected = [
            naive_pack(binding, lanes, made.rows(i, frame))
            for i, binding in enumerate(made.bindings)
        ]
        other = [made.rows(i, 1 - frame).copy() for i in range(len(made.bindings))]
        made.packer.pack(0, frame, lanes)
        for i in range(len(made.bindings)):
            np.testing.assert_array_equal(made.rows(i, frame), expected[i])
            np.testing.assert_array_equal(made.rows(i, 1 - frame), other[i])


UNSUPPORTED = sorted(
    set(ValueSource)
    - {*ROUND, *LANE, *REAL, *WIDE, *TOKEN, ValueSource.PAGE_TABLE, ValueSource.CONSTANT}
)


@pytest.mark.parametrize("source", UNSUPPORTED, ids=lambda source: source.name)
def test_sources_that_can_t_be_supplied_are_refused_at_start_up(source: ValueSource) -> None:
    with pytest.raises(ContractError, match=rf"bindings\[0\]\.source: .*{source.name}"):
        bench([bound(source, Indexing.ACTIVE_ROW)])


def test_a_host_owned_pending_token_is_refused_at_start_up() -> None:
    pending = PendingToken(None, bound(ValueSource.PENDING_TOKEN, Indexing.ACTIVE_ROW))
    with pytest.raises(ContractError, match=r"pending_token\.host_binding"):
        bench([bound(ValueSource.SLOT, Indexing.ACTIVE_ROW)], pending=pending)


REFUSED = [
    (bound(ValueSource.SLOT, Indexing.SCALAR), {}, "indexing"),
    (bound(ValueSource.PROMPT_TOKEN, Indexing.ACTIVE_ROW), {}, "indexing"),
    (bound(ValueSource.PROMPT_POSITION, Indexing.SCALAR), {}, "indexing"),
    (bound(ValueSource.SLOT, Indexing.ACTIVE_ROW), {"rows": LANES - 1}, "destination"),
    (bound(ValueSource.SLOT, Indexing.SUBMISSION_ROW), {"rows": LANES - 1}, "destination"),
    (bound(ValueSource.SLOT, Indexing.PHYSICAL_REQUEST_ROW), {"rows": SLOTS - 1}, "destination"),
    (bound(ValueSource.PROMPT_TOKEN, Indexing.PACKED_TOKEN), {"rows": TOKENS - 1}, "destination"),
    (bound(ValueSource.SLOT, Indexing.ACTIVE_ROW), {"dtype": DType.F32}, "destination"),
    (bound(ValueSource.SLOT, Indexing.ACTIVE_ROW), {"dtype": DType.BF16}, "destination"),
    (bound(ValueSource.TOP_P, Indexing.ACTIVE_ROW), {"dtype": DType.I32}, "destination"),
    (bound(ValueSource.TOP_P, Indexing.ACTIVE_ROW, offset=1), {}, "offset"),
    (bound(ValueSource.SEED, Indexing.ACTIVE_ROW, offset=1), {}, "offset"),
    (bound(ValueSource.EOS_IDS, Indexing.ACTIVE_ROW, offset=1), {}, "offset"),
    (bound(ValueSource.SLOT, Indexing.ACTIVE_ROW, offset=2**31), {}, "offset"),
    (bound(ValueSource.SLOT, Indexing.ACTIVE_ROW, offset=-(2**32)), {}, "offset"),
    (bound(ValueSource.SLOT, Indexing.SUBMISSION_ROW, padding=2**31), {}, "padding"),
    (bound(ValueSource.CONSTANT, Indexing.SCALAR, constant=2**31), {}, "constant"),
    (bound(ValueSource.CONSTANT, Indexing.SCALAR, constant=1, offset=2**31 - 1), {}, "constant"),
    (bound(ValueSource.PAGE_TABLE, Indexing.ACTIVE_ROW), {}, "indexing"),
]


@pytest.mark.parametrize(
    ("binding", "how", "field"),
    REFUSED,
    ids=[f"{b.source.name}-{b.indexing.name}-{f}-{i}" for i, (b, _, f) in enumerate(REFUSED)],
)
def test_bindings_that_don_t_go_together_are_refused_at_start_up(
    binding: ValueBinding, how: dict[str, object], field: str
) -> None:
    with pytest.raises(ContractError) as raised:
        bench([binding], **how)  # type: ignore[arg-type]
    assert raised.value.where == f"model.graphs[0].bindings[0].{field}"


def lane(slot: int = 0, generation: int = 1, **more: object) -> LaneWork:
    values = {"start": 0, "tokens": (1,), "sample": True, "pages": (), **more}
    return LaneWork(slot=slot, generation=generation, **values)  # type: ignore[arg-type]


BAD_ROUNDS = [
    ([], "0 lanes"),
    ([lane(slot) for slot in range(LANES + 1)], "5 lanes"),
    ([lane(0), lane(0)], "not distinct"),
    ([lane(SLOTS)], "not distinct and in"),
    ([lane(-1)], "not distinct and in"),
    ([lane(tokens=range(TOKENS + 1))], "13 tokens, 12 fit"),
    ([lane(tokens=())], "a lane has no tokens"),
    ([lane(generation=2**31)], "input d0"),
]


@pytest.mark.parametrize(("lanes", "match"), BAD_ROUNDS, ids=[m for _, m in BAD_ROUNDS])
def test_a_round_that_doesn_t_fit_is_refused(lanes: list[LaneWork], match: str) -> None:
    made = bench([bound(ValueSource.GENERATION, Indexing.ACTIVE_ROW)])
    with pytest.raises(ExecutionError, match=match):
        made.packer.pack(0, 0, lanes)


def test_a_lane_without_admission_is_refused() -> None:
    made = bench([bound(ValueSource.TOP_K, Indexing.ACTIVE_ROW)], Operation.INITIALIZE)
    with pytest.raises(ExecutionError, match="a lane has no admission"):
        made.packer.pack(0, 0, [lane(tokens=())])


def test_too_many_eos_ids_are_refused() -> None:
    made = bench([bound(ValueSource.EOS_IDS, Indexing.ACTIVE_ROW)], Operation.INITIALIZE)
    admission = LaneAdmission(SamplingParameters(), 1, 0, tuple(range(17)))
    with pytest.raises(ExecutionError, match=r"input d0.*17 end-of-sequence ids"):
        made.packer.pack(0, 0, [lane(tokens=(), admission=admission)])


# ---------------------------------------------------------------- page tables

PAGES = bound(ValueSource.PAGE_TABLE, Indexing.PHYSICAL_REQUEST_ROW)


class PageBench:
    """Applies each round's delta to a table, as the device's first launch does."""

    def __init__(self) -> None:
        self.made = bench([PAGES], Operation.DECODE)
        self.table = np.full((SLOTS, TABLE_PAGES), -1, np.int32)
        self._round = 0

    def pack(self, lanes: list[LaneWork]) -> int:
        """The number of entries that the round uploaded."""
        frame = self._round % 2
        self._round += 1
        self.made.packer.pack(0, frame, lanes)
        count, index, value = (self.made.staging[i, frame].view(np.int32) for i in (2, 3, 4))
        self.table.flat[index[: count[0]]] = value[: count[0]]
        return int(count[0])


def on_pages(slot: int, pages: list[int], generation: int = 1) -> LaneWork:
    start = len(pages) * PAGE_TOKENS - 1
    return lane(slot, generation, tokens=(), start=start, pages=tuple(pages))


def test_only_new_page_entries_are_uploaded() -> None:
    pages = PageBench()
    assert pages.pack([on_pages(2, [7, 8])]) == 2
    assert pages.pack([on_pages(2, [7, 8])]) == 0
    assert pages.pack([on_pages(2, [7, 8, 9]), on_pages(0, [1])]) == 2
    assert pages.table[2].tolist() == [7, 8, 9, -1, -1]
    assert pages.table[0].tolist() == [1, -1, -1, -1, -1]


def test_a_new_generation_uploads_everything_again() -> None:
    pages = PageBench()
    assert pages.pack([on_pages(2, [7, 8])]) == 2
    assert pages.pack([on_pages(2, [3, 4], generation=2)]) == 2
    assert pages.table[2].tolist() == [3, 4, -1, -1, -1]
    assert pages.pack([on_pages(2, [3, 4], generation=2)]) == 0


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_table_always_covers_the_lanes_of_a_round(data: st.DataObject) -> None:
    pages = PageBench()
    lists: dict[int, tuple[int, list[int]]] = {slot: (1, []) for slot in range(SLOTS)}
    for _ in range(data.draw(st.integers(1, 12))):
        slots = data.draw(
            st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=LANES, unique=True)
        )
        fresh = 0
        lanes = []
        for slot in slots:
            generation, held = lists[slot]
            if not held or data.draw(st.integers(0, 4)) == 0:
                generation, held = generation + 1, []
            room = TABLE_PAGES - len(held)
            more = data.draw(
                st.lists(st.integers(0, CACHE_PAGES - 1), min_size=0 if held else 1, max_size=room)
            )
            fresh += len(more)
            lists[slot] = (generation, [*held, *more])
            lanes.append(on_pages(slot, lists[slot][1], generation))
        assert pages.pack(lanes) == fresh
        for slot in slots:
            held = lists[slot][1]
            assert pages.table[slot, : len(held)].tolist() == held


BAD_PAGES = [
    (lane(tokens=(), start=4, pages=(1,)), "1 pages don't hold 5 tokens"),
    (lane(tokens=(), pages=range(TABLE_PAGES + 1)), "6 entries"),
    (lane(tokens=(), pages=(CACHE_PAGES,)), "page id is outside"),
    (lane(tokens=(), pages=(-1,)), "page id is outside"),
]


@pytest.mark.parametrize(("work", "match"), BAD_PAGES, ids=[m for _, m in BAD_PAGES])
def test_page_lists_that_can_t_be_are_refused(work: LaneWork, match: str) -> None:
    with pytest.raises(ExecutionError, match=match):
        PageBench().pack([work])


def test_a_shrunken_page_list_is_refused() -> None:
    pages = PageBench()
    pages.pack([on_pages(1, [5, 6])])
    with pytest.raises(ExecutionError, match="2 are uploaded"):
        pages.pack([on_pages(1, [5])])


def test_a_refused_round_leaves_nothing_remembered() -> None:
    pages = PageBench()
    with pytest.raises(ExecutionError, match="page id"):
        pages.pack([on_pages(0, [3]), on_pages(1, [CACHE_PAGES])])
    assert pages.pack([on_pages(0, [3])]) == 1


@pytest.mark.parametrize(
    ("views", "field"),
    [
        ((), r"bindings\[0\]\.destination: no page-table view"),
        ((PageTableView("v", "d0", 1),), r"page_tables\[0\]\.page_offset"),
    ],
)
def test_page_tables_need_a_view_without_a_shift(
    views: tuple[PageTableView, ...], field: str
) -> None:
    with pytest.raises(ContractError, match=field):
        bench([PAGES], views=views)
