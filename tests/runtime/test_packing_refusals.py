"""What packing refuses: at start-up by graph and field, later by lane and input."""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import PendingToken, ValueBinding
from helios.errors import ContractError, ExecutionError
from helios.runtime import value_sources
from helios.runtime.manifest import DType
from helios.runtime.rounds import LaneAdmission, LaneExtras, LaneWork, Proposal, SamplingParameters
from tests.runtime.packing_bench import (
    HISTOGRAM_TOKENS,
    MASK_WORDS,
    SLOTS,
    SNAPSHOTS,
    UNTOUCHED,
    Bench,
    Delta,
    Graph,
    Staged,
    admission,
    bench,
    bind,
    lane,
)

V, Ix, Op = ValueSource, Indexing, Operation
ROWS = 12
INTEGERS = Staged(DType.I32, (ROWS,))
REALS = Staged(DType.F32, (ROWS,))
GRAPH = Graph(Op.PREFILL, ())
DECODE = Graph(Op.DECODE, (), packed_tokens=4)
INITIALIZE = Graph(Op.INITIALIZE, (), target_tokens=0, packed_tokens=0)
SPECULATIVE = Graph(Op.SPECULATIVE, (), draft_tokens=2, target_tokens=3)


def bound(source: ValueSource, indexing: Indexing, **more: int | str) -> ValueBinding:
    return bind("d0", source, indexing, **more)  # type: ignore[arg-type]


def made(graph: Graph, *bindings: ValueBinding, to: Staged | Delta = INTEGERS) -> Bench:
    named = tuple(replace(binding, destination=f"d{i}") for i, binding in enumerate(bindings))
    destinations = dict.fromkeys((binding.destination for binding in named), to)
    return bench([replace(graph, bindings=named)], destinations)


AT_START_UP = [
    # a value for each lane or token has no single place
    (GRAPH, bound(V.SLOT, Ix.SCALAR), INTEGERS, "indexing"),
    (GRAPH, bound(V.PROMPT_TOKEN, Ix.ACTIVE_ROW), INTEGERS, "indexing"),
    (GRAPH, bound(V.PROMPT_POSITION, Ix.SCALAR), INTEGERS, "indexing"),
    (GRAPH, bound(V.GRAMMAR_MASK, Ix.SCALAR), Staged(DType.U32, (ROWS, MASK_WORDS)), "indexing"),
    (GRAPH, bound(V.IMAGE_TENSOR, Ix.SCALAR, tensor="x"), INTEGERS, "indexing"),
    # too few rows
    (GRAPH, bound(V.SLOT, Ix.ACTIVE_ROW), Staged(DType.I32, (3,)), "destination"),
    (GRAPH, bound(V.SLOT, Ix.SUBMISSION_ROW), Staged(DType.I32, (3,)), "destination"),
    (GRAPH, bound(V.SLOT, Ix.PHYSICAL_REQUEST_ROW), Staged(DType.I32, (4,)), "destination"),
    (GRAPH, bound(V.SLOT, Ix.PACKED_TOKEN), Staged(DType.I32, (11,)), "destination"),
    (GRAPH, bound(V.SLOT, Ix.PACKED_TOKEN), Staged(DType.I32, (), by_slot=True), "destination"),
    # other elements than the source's
    (GRAPH, bound(V.SLOT, Ix.ACTIVE_ROW), REALS, "destination"),
    (GRAPH, bound(V.SLOT, Ix.ACTIVE_ROW), Staged(DType.BF16, (ROWS,)), "destination"),
    (GRAPH, bound(V.SLOT, Ix.ACTIVE_ROW), Staged(DType.I32, (ROWS, 2)), "destination"),
    (INITIALIZE, bound(V.TOP_P, Ix.ACTIVE_ROW), INTEGERS, "destination"),
    (INITIALIZE, bound(V.SEED, Ix.ACTIVE_ROW), INTEGERS, "destination"),
    (INITIALIZE, bound(V.SEED, Ix.ACTIVE_ROW), Staged(DType.I32, (ROWS, 2)), "destination"),
    (INITIALIZE, bound(V.EOS_IDS, Ix.ACTIVE_ROW), Staged(DType.U32, (ROWS, 2)), "destination"),
    (
        GRAPH,
        bound(V.PROMPT_TOKEN, Ix.PACKED_TOKEN, offset=90),
        Staged(DType.I8, (ROWS,)),
        "destination",
    ),
    (GRAPH, bound(V.RESTORE_SOURCE, Ix.ACTIVE_ROW), Staged(DType.U32, (ROWS,)), "destination"),
    (
        GRAPH,
        bound(V.GRAMMAR_MASK, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, MASK_WORDS)),
        "destination",
    ),
    (GRAPH, bound(V.GRAMMAR_MASK, Ix.ACTIVE_ROW), Staged(DType.U32, (ROWS, 3)), "destination"),
    (
        INITIALIZE,
        bound(V.PROMPT_HISTOGRAM, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, 44)),
        "destination",
    ),
    (SPECULATIVE, bound(V.PROPOSAL_TOKEN, Ix.ACTIVE_ROW), INTEGERS, "destination"),
    (INITIALIZE, bound(V.LOGIT_BIAS, Ix.ACTIVE_ROW), INTEGERS, "destination"),
    (INITIALIZE, bound(V.STOP_TOKEN_ID, Ix.ACTIVE_ROW), REALS, "destination"),
    (INITIALIZE, bound(V.TOKEN_MASK, Ix.ACTIVE_ROW), Staged(DType.I32, (ROWS, 2)), "destination"),
    (INITIALIZE, bound(V.STOP_TOKEN_ID, Ix.ACTIVE_ROW, offset=1), INTEGERS, "offset"),
    (DECODE, bound(V.LOGIT_BIAS, Ix.ACTIVE_ROW), REALS, "source"),
    (DECODE, bound(V.TOKEN_MASK, Ix.ACTIVE_ROW), Staged(DType.U32, (ROWS, 2)), "source"),
    (
        SPECULATIVE,
        bound(V.PROPOSAL_GRAMMAR_MASK, Ix.ACTIVE_ROW),
        Staged(DType.U32, (ROWS, 2, MASK_WORDS)),
        "destination",
    ),
    # numbers beside the values
    (INITIALIZE, bound(V.TOP_P, Ix.ACTIVE_ROW, offset=1), REALS, "offset"),
    (INITIALIZE, bound(V.SEED, Ix.ACTIVE_ROW, offset=1), Staged(DType.U32, (ROWS, 2)), "offset"),
    (
        GRAPH,
        bound(V.GRAMMAR_MASK, Ix.ACTIVE_ROW, offset=1),
        Staged(DType.U32, (ROWS, MASK_WORDS)),
        "offset",
    ),
    (GRAPH, bound(V.IMAGE_TENSOR, Ix.ACTIVE_ROW, offset=1, tensor="x"), REALS, "offset"),
    (GRAPH, bound(V.SLOT, Ix.SUBMISSION_ROW, padding=2**31), INTEGERS, "padding"),
    (GRAPH, bound(V.CONSTANT, Ix.SCALAR, constant=2**31), INTEGERS, "constant"),
    (GRAPH, bound(V.CONSTANT, Ix.SCALAR, constant=1, offset=2**31 - 1), INTEGERS, "constant"),
    # what lanes of the operation don't bring
    (DECODE, bound(V.PROMPT_TOKEN, Ix.PACKED_TOKEN), INTEGERS, "source"),
    (DECODE, bound(V.SCORED_TARGET_TOKEN, Ix.PACKED_TOKEN), INTEGERS, "source"),
    (DECODE, bound(V.TOP_K, Ix.ACTIVE_ROW), INTEGERS, "source"),
    (DECODE, bound(V.MIXED_PREFILL_ROW, Ix.SCALAR), INTEGERS, "source"),
    (DECODE, bound(V.PROPOSAL_TOKEN, Ix.ACTIVE_ROW), Staged(DType.I32, (ROWS, 3)), "source"),
    (
        GRAPH,
        bound(V.PROMPT_HISTOGRAM, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, HISTOGRAM_TOKENS)),
        "source",
    ),
    (DECODE, bound(V.PROPOSAL_COUNT, Ix.ACTIVE_ROW), INTEGERS, "source"),
    (DECODE, bound(V.SPECULATIVE_PREFIX_LIMIT, Ix.ACTIVE_ROW), INTEGERS, "source"),
    (GRAPH, bound(V.PENDING_TOKEN, Ix.ACTIVE_ROW), INTEGERS, "source"),
    (
        replace(INITIALIZE, operation=Op.RESTORE),
        bound(V.PENDING_TOKEN, Ix.ACTIVE_ROW),
        INTEGERS,
        "source",
    ),
    # page tables travel as deltas, little else does
    (DECODE, bound(V.PAGE_TABLE, Ix.PHYSICAL_REQUEST_ROW), INTEGERS, "destination"),
    (DECODE, bound(V.SLOT, Ix.PHYSICAL_REQUEST_ROW), Delta("t", 6, 30), "source"),
    (
        INITIALIZE,
        bound(V.PROMPT_HISTOGRAM, Ix.ACTIVE_ROW),
        Delta("t", HISTOGRAM_TOKENS, 120),
        "indexing",
    ),
    (
        INITIALIZE,
        bound(V.PROMPT_HISTOGRAM, Ix.PHYSICAL_REQUEST_ROW, offset=1),
        Delta("t", HISTOGRAM_TOKENS, 120),
        "offset",
    ),
    (
        INITIALIZE,
        bound(V.PROMPT_HISTOGRAM, Ix.PHYSICAL_REQUEST_ROW),
        Delta("t", 44, 120),
        "destination",
    ),
]


@pytest.mark.clause("BIND-10")
@pytest.mark.parametrize(
    ("graph", "binding", "to", "field"),
    AT_START_UP,
    ids=[
        f"{b.source.name}-{b.indexing.name}-{f}-{i}" for i, (_, b, _, f) in enumerate(AT_START_UP)
    ],
)
def test_what_doesn_t_go_together_is_refused_at_start_up(
    graph: Graph, binding: ValueBinding, to: Staged | Delta, field: str
) -> None:
    with pytest.raises(ContractError) as raised:
        made(graph, binding, to=to)
    assert raised.value.where == f"model.graphs[0].bindings[0].{field}"
    assert "(graph p)" in str(raised.value)


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (bound(V.SLOT, Ix.PACKED_TOKEN), "indexing"),
        (bound(V.LIVE_TOKEN_COUNT, Ix.SCALAR), "source"),
        (bound(V.QUERY_LENGTH, Ix.ACTIVE_ROW), "source"),
    ],
    ids=["PACKED_TOKEN", "LIVE_TOKEN_COUNT", "QUERY_LENGTH"],
)
def test_a_program_that_allots_tokens_is_told_of_none(other: ValueBinding, field: str) -> None:
    limit = bound(V.SPECULATIVE_PREFIX_LIMIT, Ix.ACTIVE_ROW)
    with pytest.raises(ContractError) as raised:
        made(SPECULATIVE, limit, other)
    assert raised.value.where == f"model.graphs[0].bindings[1].{field}"


def test_ceilings_may_exceed_what_the_program_packs() -> None:
    graph = replace(SPECULATIVE, packed_tokens=4)
    lanes = [lane(slot, tokens=(), extras=LaneExtras(length=3)) for slot in range(4)]
    ceilings = made(graph, bound(V.SPECULATIVE_PREFIX_LIMIT, Ix.ACTIVE_ROW))
    ceilings.packer.pack(0, 0, lanes)
    assert ceilings.elements("d0").tolist() == [3] * 4 + [UNTOUCHED * 0x01010101] * 8
    exact = made(graph, bound(V.QUERY_LENGTH, Ix.ACTIVE_ROW))
    with pytest.raises(ExecutionError, match="12 tokens, 4 fit"):
        exact.packer.pack(0, 0, lanes)


@pytest.mark.clause("BIND-12")
def test_a_host_owned_pending_token_is_filled() -> None:
    pending = bound(V.PENDING_TOKEN, Ix.ACTIVE_ROW)
    slot = bind("d1", V.SLOT, Ix.ACTIVE_ROW)
    graph = replace(DECODE, bindings=(slot,), pending=PendingToken(None, pending))
    packed = bench([graph], {"d0": INTEGERS, "d1": INTEGERS})
    lanes = [lane(2, tokens=(), pending_token=7), lane(0, tokens=(), pending_token=9)]
    packed.packer.pack(0, 1, lanes)
    assert packed.elements("d0", 1)[:2].tolist() == [7, 9]
    assert packed.elements("d1", 1)[:2].tolist() == [2, 0]
    with pytest.raises(ExecutionError, match=r"lane 1 \(slot 3, .*input d0: has no pending token"):
        packed.packer.pack(0, 0, [lanes[0], lane(3, tokens=())])


MIXED = Graph(Op.MIXED, ())
IN_A_ROUND = [
    (GRAPH, [], "p: 0 lanes"),
    (GRAPH, [lane(slot) for slot in range(5)], "p: 5 lanes"),
    (GRAPH, [lane(0), lane(0)], "not distinct"),
    (GRAPH, [lane(SLOTS)], "not distinct and in"),
    (GRAPH, [lane(-1)], "not distinct and in"),
    (GRAPH, [lane(tokens=range(7)), lane(1, tokens=range(6))], "p: 13 tokens, 12 fit"),
    (GRAPH, [lane(0), lane(1, tokens=())], r"p, lane 1 \(slot 1, .*: has 0 tokens"),
    (GRAPH, [lane(0), lane(3, generation=2**31)], r"lane 1 \(slot 3, .* input d0: .*2147483648"),
    (SPECULATIVE, [lane(tokens=())], "lane 0 .*has 0 tokens, 1 to 3 fit"),
    (SPECULATIVE, [lane(tokens=(), extras=LaneExtras(length=4))], "has 4 tokens, 1 to 3 fit"),
    (
        replace(SPECULATIVE, draft_tokens=1),
        [lane(tokens=(), extras=LaneExtras(length=3))],
        "has 3 tokens, 1 to 2 fit",
    ),
    (MIXED, [lane(0)], "the last lane, and it alone"),
    (MIXED, [lane(0, tokens=()), lane(1, tokens=())], "the last lane, and it alone"),
    (MIXED, [lane(0), lane(1)], "the last lane, and it alone"),
    (MIXED, [lane(0), lane(1, tokens=())], "the last lane, and it alone"),
]


@pytest.mark.parametrize(
    ("graph", "lanes", "match"),
    IN_A_ROUND,
    ids=[f"{g.operation.name}-{m}" for g, _, m in IN_A_ROUND],
)
def test_a_round_that_doesn_t_fit_is_refused(
    graph: Graph, lanes: list[LaneWork], match: str
) -> None:
    packed = made(graph, bound(V.GENERATION, Ix.ACTIVE_ROW))
    with pytest.raises(ExecutionError, match=match):
        packed.packer.pack(0, 0, lanes)


@pytest.mark.parametrize("few", [0, 512], ids=["as an array", "as a list"])
@pytest.mark.parametrize("offset", [0, 3])
def test_positions_that_no_element_holds_are_refused_however_many_they_are(
    monkeypatch: pytest.MonkeyPatch, few: int, offset: int
) -> None:
    monkeypatch.setattr(value_sources, "_FEW", few)
    packed = made(GRAPH, bound(V.PROMPT_POSITION, Ix.PACKED_TOKEN, offset=offset))
    last = 2**31 - 1 - offset
    packed.packer.pack(0, 0, [lane(0, tokens=(1, 2)), lane(3, start=last - 1, tokens=(1, 2))])
    assert packed.elements("d0")[:4].tolist() == [offset, offset + 1, 2**31 - 2, 2**31 - 1]
    with pytest.raises(ExecutionError, match=r"lane 1 \(slot 3, .* input d0: .*out of bounds"):
        packed.packer.pack(0, 0, [lane(0, tokens=(1, 2)), lane(3, start=last, tokens=(1, 2))])


@pytest.mark.parametrize("kind", [list, tuple, partial(array, "i")], ids=["list", "tuple", "array"])
def test_tokens_are_staged_and_refused_alike_whatever_holds_them(kind: Any) -> None:
    packed = made(GRAPH, bound(V.PROMPT_TOKEN, Ix.PACKED_TOKEN), to=Staged(DType.I8, (ROWS,)))
    packed.packer.pack(0, 0, [lane(3, tokens=kind([5, 90, 0]))])
    assert packed.staging["d0", 0][:3].tolist() == [5, 90, 0]
    with pytest.raises(ExecutionError, match=r"lane 0 \(slot 3, .* input d0"):
        packed.packer.pack(0, 0, [lane(3, tokens=kind([5, 128, 0]))])


MASKS = Staged(DType.U32, (ROWS, MASK_WORDS))
RESUME = replace(INITIALIZE, operation=Op.RESUME)
IMAGES = Staged(DType.F32, (ROWS, 2))


def extra(**values: object) -> LaneWork:
    return lane(4, tokens=(1, 2), extras=LaneExtras(**values))  # type: ignore[arg-type]


MISSING = [
    (INITIALIZE, bound(V.TOP_K, Ix.ACTIVE_ROW), INTEGERS, lane(4), "has no admission"),
    (
        INITIALIZE,
        bound(V.EOS_IDS, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, 2)),
        lane(4, admission=LaneAdmission(SamplingParameters(), 1, 0, (1, 2, 3))),
        "has 3 end-of-sequence ids, 2 fit",
    ),
    (
        INITIALIZE,
        bound(V.TEMPERATURE, Ix.ACTIVE_ROW),
        REALS,
        lane(4, admission=admission(temperature=1e39)),
        "1e\\+39, which is no 32-bit number",
    ),
    (
        INITIALIZE,
        bound(V.MIN_P, Ix.ACTIVE_ROW),
        REALS,
        lane(4, admission=admission(min_p=float("nan"))),
        "nan, which is no",
    ),
    (
        RESUME,
        bound(V.RESTORE_SOURCE, Ix.ACTIVE_ROW),
        INTEGERS,
        lane(4, restore_row=3),
        "snapshot 3",
    ),
    (
        RESUME,
        bound(V.RESTORE_SOURCE, Ix.ACTIVE_ROW),
        INTEGERS,
        lane(4, restore_row=-2),
        "snapshot -2",
    ),
    (
        RESUME,
        bound(V.PENDING_TOKEN, Ix.ACTIVE_ROW),
        INTEGERS,
        lane(4, tokens=()),
        "no pending token",
    ),
    (
        GRAPH,
        bound(V.SCORED_TARGET_TOKEN, Ix.PACKED_TOKEN),
        INTEGERS,
        lane(4, tokens=(1, 2), targets=(1,)),
        "has 1 targets for 2 tokens",
    ),
    (GRAPH, bound(V.GRAMMAR_MASK, Ix.ACTIVE_ROW), MASKS, extra(grammar_mask=b"1234567"), "7 bytes"),
    (
        INITIALIZE,
        bound(V.PROMPT_HISTOGRAM, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, HISTOGRAM_TOKENS)),
        extra(),
        "has no history",
    ),
    (
        INITIALIZE,
        bound(V.RECENT_OUTPUT_TOKEN, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, 4)),
        lane(4, admission=admission(bad_words=((1,),))),
        "has no history",
    ),
    (
        INITIALIZE,
        bound(V.OUTPUT_HISTOGRAM, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, HISTOGRAM_TOKENS)),
        extra(history=(1,))._replace(admission=replace(admission(), emitted=2)),
        "emitted 2 tokens, but a history of 1",
    ),
    (
        INITIALIZE,
        bound(V.LOGIT_BIAS_TOKEN, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, 4)),
        lane(4, admission=admission(logit_bias=((1, 0.5),) * 5)),
        "has 5 biased tokens, 4 fit",
    ),
    (
        INITIALIZE,
        bound(V.LOGIT_BIAS, Ix.ACTIVE_ROW),
        Staged(DType.F32, (ROWS, 4)),
        lane(4, admission=admission(logit_bias=((1, 1e39),))),
        "has a bias that is no 32-bit number",
    ),
    (
        INITIALIZE,
        bound(V.BAD_WORD_TOKEN, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, 4)),
        lane(4, admission=admission(bad_words=((1, 2), (3,)))),
        "has 5 elements of bad words, 4 fit",
    ),
    (
        INITIALIZE,
        bound(V.STOP_TOKEN_ID, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, 4)),
        lane(4, admission=admission(stop_ids=(50,))),
        "names a token outside",
    ),
    (
        INITIALIZE,
        bound(V.TOKEN_MASK, Ix.ACTIVE_ROW),
        MASKS,
        lane(4, admission=admission(allowed_tokens=(-1,))),
        "names a token outside",
    ),
    (
        GRAPH,
        bound(V.IMAGE_FEATURE_INDEX, Ix.PACKED_TOKEN),
        INTEGERS,
        extra(feature_indices=(1,)),
        "has 1 feature indices for 2 tokens",
    ),
    (GRAPH, bound(V.IMAGE_TENSOR, Ix.PACKED_TOKEN, tensor="x"), IMAGES, extra(), "tensor 'x'"),
    (
        GRAPH,
        bound(V.IMAGE_TENSOR, Ix.PACKED_TOKEN, tensor="x"),
        IMAGES,
        extra(images={"x": np.zeros((4, 1), np.float32)}),
        r"shape \(4, 1\), not \(2, 2\)",
    ),
    (
        GRAPH,
        bound(V.IMAGE_TENSOR, Ix.PACKED_TOKEN, tensor="x"),
        IMAGES,
        extra(images={"x": np.zeros((2, 2), np.int32)}),
        "type int32 for float32",
    ),
    (
        GRAPH,
        bound(V.IMAGE_TENSOR, Ix.ACTIVE_ROW, tensor="x"),
        INTEGERS,
        extra(images={"x": np.array([2**31])}),
        "out of bounds for int32",
    ),
    (
        SPECULATIVE,
        bound(V.PROPOSAL_TOKEN, Ix.ACTIVE_ROW),
        Staged(DType.I32, (ROWS, 3)),
        lane(4, tokens=(), extras=LaneExtras(length=2, proposal=Proposal((1, 2), 1, 0))),
        "2 proposed tokens for 2 target tokens",
    ),
    (
        SPECULATIVE,
        bound(V.PROPOSAL_GRAMMAR_MASK, Ix.PACKED_TOKEN),
        MASKS,
        lane(4, tokens=(), extras=LaneExtras(length=1, proposal=Proposal((), 1, 0, (b"",) * 2))),
        "2 grammar masks for 1 tokens",
    ),
]


@pytest.mark.parametrize(
    ("graph", "binding", "to", "work", "match"), MISSING, ids=[m[1].source.name for m in MISSING]
)
def test_the_lane_and_the_input_are_named(
    graph: Graph, binding: ValueBinding, to: Staged, work: LaneWork, match: str
) -> None:
    assert SNAPSHOTS == 3
    packed = made(graph, binding, to=to)
    with pytest.raises(
        ExecutionError, match=rf"^p, lane 0 \(slot 4, generation 1\), input d0: .*{match}"
    ):
        packed.packer.pack(0, 0, [work])
