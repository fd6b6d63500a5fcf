"""Packing against a naive packer: every source, indexing and type, in random contracts."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import PageTableView
from helios.errors import ContractError, ExecutionError
from helios.runtime import value_sources
from helios.runtime.manifest import DType
from helios.runtime.rounds import LaneWork
from tests.runtime.binding_rules import KINDS, OPERATIONS, ROWS, brings, fits
from tests.runtime.naive_packing import NaivePacker, untouched
from tests.runtime.packing_bench import MASK_WORDS, SLOTS, Bench, Staged, bench, bind
from tests.runtime.random_contracts import (
    Contract,
    allowed_indexings,
    make_binding,
    make_contract,
    make_destination,
    make_extents,
)
from tests.runtime.random_rounds import Slots, make_cohort


def made_bench(contract: Contract) -> Bench:
    views = [PageTableView(name, name, at) for name, at in contract.page_offsets.items()]
    return bench(contract.graphs, contract.destinations, views=views)


def accepted(contract: Contract) -> bool:
    """Whether each destination holds whatever its source may be."""
    return all(
        fits(binding, graph, contract.destinations[binding.destination].dtype, contract.state_rows)
        for graph in contract.graphs
        for binding in graph.bindings
        if binding.destination not in contract.page_offsets
    )


def compare(
    random: Random,
    contract: Contract,
    rounds: int,
    alter: Callable[[list[LaneWork]], list[LaneWork]] = list,
) -> int:
    """Packs rounds of the contract, altered, beside the naive packer and compares every staged byte
    of both frames after each. Some are packed ahead, as others are that never come. Returns how
    many rounds were not refused."""
    made = made_bench(contract)
    naive = NaivePacker(contract.destinations, contract.page_offsets, contract.state_rows)
    naive.bytes = {key: untouched(len(content)) for key, content in made.staging.items()}
    slots = Slots()
    packed = 0
    for _ in range(rounds):
        program, frame = random.randrange(len(contract.graphs)), random.randrange(2)
        graph = contract.graphs[program]
        lanes = alter(make_cohort(random, contract, graph, slots))
        if random.random() < 0.3:
            other = random.randrange(len(contract.graphs))
            never = make_cohort(random, contract, contract.graphs[other], deepcopy(slots))
            made.packer.pack_ahead(other, random.randrange(2), never)
            # Staging holds what has been packed ahead; what is remembered doesn't.
            naive.bytes = {key: bytearray(c.tobytes()) for key, c in made.staging.items()}
        if random.random() < 0.3:
            made.packer.pack_ahead(program, frame, lanes)
        unfit = naive.pack(graph, frame, lanes)
        if not unfit:
            made.packer.pack(program, frame, lanes)
            packed += 1
        else:
            with pytest.raises(ExecutionError) as raised:
                made.packer.pack(program, frame, lanes)
            named = re.fullmatch(r"p\d, lane (\d) \(slot .*\), input (d\d)", raised.value.where)
            assert named is not None, raised.value
            assert (int(named[1]), named[2]) in unfit
            # Staging may hold a part of the refused round; what is remembered may not.
            naive.bytes = {key: bytearray(c.tobytes()) for key, c in made.staging.items()}
        for key, content in made.staging.items():
            expected = np.frombuffer(bytes(naive.bytes[key]), np.uint8)
            np.testing.assert_array_equal(content, expected, str(key))
    return packed


@pytest.mark.clause("BIND-8", "BIND-9", "BIND-10")
@settings(max_examples=500, deadline=None)
@given(
    random=st.randoms(use_true_random=True),
    destinations=st.integers(1, 8),
    programs=st.integers(1, 3),
    rounds=st.integers(1, 8),
)
def test_every_byte_is_what_the_naive_packer_writes(
    random: Random, destinations: int, programs: int, rounds: int
) -> None:
    contract = make_contract(random, destinations, programs)
    if accepted(contract):
        compare(random, contract, rounds)
        return
    with pytest.raises(ContractError) as refused:
        made_bench(contract)
    field = r"model\.graphs\[\d\]\.bindings\[\d\]\.(destination|constant)"
    assert re.fullmatch(field, refused.value.where), refused.value


IDENTITY = [
    ValueSource.SLOT,
    ValueSource.GENERATION,
    ValueSource.LIVE_ROW_COUNT,
    ValueSource.LIVE_TOKEN_COUNT,
    ValueSource.QUERY_LENGTH,
    ValueSource.SPECULATIVE_PREFIX_LIMIT,
    ValueSource.SAMPLING_DECISION,
    ValueSource.MIXED_PREFILL_ROW,
]
TOKENS = [
    ValueSource.PROMPT_TOKEN,
    ValueSource.SCORED_TARGET_TOKEN,
    ValueSource.SCORED_TOP_LOGPROBS,
    ValueSource.PENDING_TOKEN,
    ValueSource.PROMPT_POSITION,
    ValueSource.IMAGE_FEATURE_INDEX,
    ValueSource.IMAGE_CONTEXT_INDEX,
    ValueSource.IMAGE_FEATURE_SLOT,
]
CACHE = [
    ValueSource.PAGE_TABLE,
    ValueSource.LIVE_STATE_ROW,
    ValueSource.RESTORE_SOURCE,
    ValueSource.SNAPSHOT_DESTINATION,
    ValueSource.CONSUMED_TOKENS,
]
SAMPLING = [
    ValueSource.SEED,
    ValueSource.TEMPERATURE,
    ValueSource.TOP_K,
    ValueSource.TOP_P,
    ValueSource.MIN_P,
    ValueSource.REPETITION_PENALTY,
    ValueSource.PRESENCE_PENALTY,
    ValueSource.FREQUENCY_PENALTY,
    ValueSource.OUTPUT_LIMIT,
    ValueSource.EMITTED_TOKENS,
    ValueSource.EOS_IDS,
    ValueSource.PROMPT_HISTOGRAM,
    ValueSource.GRAMMAR_MASK,
    ValueSource.OUTPUT_HISTOGRAM,
    ValueSource.RECENT_OUTPUT_TOKEN,
    ValueSource.LOGIT_BIAS_TOKEN,
    ValueSource.LOGIT_BIAS,
    ValueSource.TOKEN_MASK,
    ValueSource.BAD_WORD_TOKEN,
    ValueSource.MIN_TOKENS,
    ValueSource.STOP_TOKEN_ID,
    ValueSource.TOP_LOGPROBS,
]
PROPOSALS = [
    ValueSource.PROPOSAL_TOKEN,
    ValueSource.PROPOSAL_COUNT,
    ValueSource.PROPOSAL_GENERATION,
    ValueSource.PROPOSAL_ENDPOINT,
    ValueSource.PROPOSAL_GRAMMAR_MASK,
]
OTHERS = [ValueSource.CONSTANT, ValueSource.IMAGE_TENSOR]


def every_way(source: ValueSource) -> None:
    """Packs a source in every operation whose lanes bring it, under every indexing that has a
    place for it, into destinations of every kind that takes it."""
    random = Random(source.value)
    kinds = sorted(kind for kind, sources in KINDS.items() if source in sources)
    tried, packed = set(), set()
    for way in list(product(OPERATIONS, kinds, Indexing)) * 12:
        operation, kind, indexing = way
        if not brings(operation, source, kind):
            continue
        graph = make_extents(random, operation, width=3)
        destination = make_destination(random, kind, width=3)
        if way in packed or indexing not in allowed_indexings(source, kind, graph, destination):
            continue
        tried.add(way)
        binding = make_binding(random, "d0", source, indexing, graph, destination)
        graph = replace(graph, name="p0", bindings=(binding,))
        pages = {"d0": random.choice([0, 1])} if kind == "pages" else {}
        contract = Contract((graph,), {"d0": destination}, pages, graph.state_rows)
        if accepted(contract) and compare(random, contract, rounds=6):
            packed.add(way)
    assert packed
    assert packed == tried


@pytest.mark.clause("BIND-9")
@pytest.mark.parametrize("seed", range(8))
def test_rows_of_lanes_without_a_mask_are_remembered_and_those_with_one_are_not(seed: int) -> None:
    """A frame keeps what its rows hold, whichever program wrote them."""
    random = Random(seed)
    binding = bind("d0", ValueSource.GRAMMAR_MASK, Indexing.ACTIVE_ROW)
    graphs = tuple(
        replace(make_extents(random, Operation.DECODE, 1), name=f"p{number}", bindings=(binding,))
        for number in range(2)
    )
    contract = Contract(graphs, {"d0": Staged(DType.U32, (ROWS, MASK_WORDS))}, {}, SLOTS)

    def without_masks(lanes: list[LaneWork]) -> list[LaneWork]:
        plain = random.random() < 0.6
        return [
            lane._replace(extras=None) if plain or random.random() < 0.5 else lane for lane in lanes
        ]

    assert compare(random, contract, 60, without_masks) > 30


def by_name(source: ValueSource) -> str:
    return source.name


@pytest.mark.clause("BIND-2")
@pytest.mark.parametrize("source", IDENTITY, ids=by_name)
def test_identity_and_geometry_are_supplied(source: ValueSource) -> None:
    every_way(source)


@pytest.mark.clause("BIND-3")
@pytest.mark.parametrize("source", TOKENS, ids=by_name)
def test_tokens_and_positions_are_supplied(source: ValueSource) -> None:
    every_way(source)


@pytest.mark.clause("BIND-3")
def test_positions_of_long_prompts_are_those_of_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_sources, "_FEW", 0)
    every_way(ValueSource.PROMPT_POSITION)


@pytest.mark.clause("BIND-4")
@pytest.mark.parametrize("source", CACHE, ids=by_name)
def test_cache_bindings_are_supplied(source: ValueSource) -> None:
    every_way(source)


@pytest.mark.clause("BIND-5")
@pytest.mark.parametrize("source", SAMPLING, ids=by_name)
def test_admission_sampling_is_supplied(source: ValueSource) -> None:
    every_way(source)


@pytest.mark.clause("BIND-6")
@pytest.mark.parametrize("source", PROPOSALS, ids=by_name)
def test_copied_proposals_are_supplied(source: ValueSource) -> None:
    every_way(source)


@pytest.mark.clause("BIND-7")
@pytest.mark.parametrize("source", OTHERS, ids=by_name)
def test_constants_and_image_tensors_are_supplied(source: ValueSource) -> None:
    every_way(source)


def test_no_source_is_left_out() -> None:
    assert {*IDENTITY, *TOKENS, *CACHE, *SAMPLING, *PROPOSALS, *OTHERS} == set(ValueSource)
