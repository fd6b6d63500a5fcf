"""Choosing slots, pages and programs, and planning memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.contract import PreparedContract, decode
from helios.contract.enums import Operation
from helios.errors import ContractError
from helios.runtime.capacities import (
    available_nbytes,
    check_fits,
    choose_cache_pages,
    choose_request_slots,
    page_nbytes,
    plan_memory,
)
from helios.runtime.manifest import BufferClass, LeadingCount, Manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.selection import choose_programs
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import WEIGHT_NBYTES, sample_manifest

PAGE_NBYTES = 2 * 4 * 4 * 2  # two planes of f16 [1, 4, 4]
ONE_CONTEXT = 6  # pages of 4 tokens for 24
PLENTY = 1 << 40


@pytest.fixture(scope="module")
def contract() -> PreparedContract:
    return decode(sample_contract())


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return decode_manifest(sample_manifest())


@pytest.mark.parametrize(("asked", "chosen"), [(None, 4), (1, 1), (4, 4)])
def test_request_slots_can_be_lowered(
    contract: PreparedContract, asked: int | None, chosen: int
) -> None:
    assert choose_request_slots(contract, asked) == chosen


@pytest.mark.parametrize("asked", [0, -1, 5])
def test_other_request_slots_are_refused(contract: PreparedContract, asked: int) -> None:
    with pytest.raises(ContractError, match="1 to 4"):
        choose_request_slots(contract, asked)


@pytest.mark.parametrize(("slots", "kept"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 4]), (4, [1, 2, 4])])
def test_decode_programs_up_to_the_smallest_that_covers_the_slots(
    manifest: Manifest, slots: int, kept: list[int]
) -> None:
    chosen = choose_programs(manifest, slots)
    assert [p.batch_capacity for p in chosen if p.operation is Operation.DECODE] == kept
    others = [p.name for p in chosen if p.operation is not Operation.DECODE]
    assert others == ["initialize.b4", "prefill.p8", "prefill.p16"]


@pytest.mark.parametrize("operation", [Operation.INITIALIZE, Operation.PREFILL, Operation.DECODE])
def test_a_missing_operation_is_refused(manifest: Manifest, operation: Operation) -> None:
    programs = tuple(p for p in manifest.programs if p.operation is not operation)
    with pytest.raises(ContractError, match=f"no {operation.name} program"):
        choose_programs(replace(manifest, programs=programs), 1)


def test_uncovered_slots_and_other_operations_are_refused(manifest: Manifest) -> None:
    with pytest.raises(ContractError, match="no DECODE program takes 5 lanes"):
        choose_programs(manifest, 5)
    foreign = replace(manifest.programs[0], name="restore", operation=Operation.RESTORE)
    with pytest.raises(ContractError, match="RESTORE"):
        choose_programs(replace(manifest, programs=(*manifest.programs, foreign)), 1)
    tuned = replace(manifest.programs[0], tuned=(("choice", "tune"),))
    with pytest.raises(ContractError, match=r"initialize\.b4: .*tuning"):
        choose_programs(replace(manifest, programs=(tuned, *manifest.programs[1:])), 1)


PAGES = [
    (None, PLENTY, 4, 4 * ONE_CONTEXT),  # every slot its whole context, shorter than 1024
    (None, PLENTY, 1, ONE_CONTEXT),
    (None, 4 * 10 * PAGE_NBYTES, 4, 10),  # a quarter of what is available
    (None, 0, 4, ONE_CONTEXT),  # but at least one context
    (ONE_CONTEXT * PAGE_NBYTES, 0, 4, ONE_CONTEXT),
    (8 * PAGE_NBYTES - 1, 0, 4, 7),
    (1000 * PAGE_NBYTES, 0, 1, 1000),
]


@pytest.mark.parametrize(("asked", "available", "slots", "pages"), PAGES)
def test_cache_pages(
    contract: PreparedContract,
    manifest: Manifest,
    asked: int | None,
    available: int,
    slots: int,
    pages: int,
) -> None:
    assert page_nbytes(manifest) == PAGE_NBYTES
    assert choose_cache_pages(contract, manifest, slots, asked, available) == pages


@pytest.mark.parametrize("asked", [0, -1, ONE_CONTEXT * PAGE_NBYTES - 1])
def test_a_cache_smaller_than_one_context_is_refused(
    contract: PreparedContract, manifest: Manifest, asked: int
) -> None:
    with pytest.raises(ContractError, match=r"24 tokens takes 6 pages. Ask for 1 MiB"):
        choose_cache_pages(contract, manifest, 4, asked, PLENTY)


def test_a_long_context_takes_1024_tokens_a_slot_by_default(
    contract: PreparedContract, manifest: Manifest
) -> None:
    long = replace(contract, max_context_tokens=4096)
    assert choose_cache_pages(long, manifest, 8, None, PLENTY) == 8 * 256


def test_a_plan_resolves_every_size(manifest: Manifest) -> None:
    counts = {LeadingCount.REQUEST_SLOTS: 3, LeadingCount.CACHE_PAGES: 10}
    plan = plan_memory(manifest, counts)
    by_name = {planned.buffer.name: planned for planned in plan.buffers}
    assert (by_name["request_state"].shape, by_name["request_state"].nbytes) == ((3, 128), 384)
    assert by_name["cache.k.0"].shape == (10, 1, 4, 4)
    assert by_name["table"].nbytes == WEIGHT_NBYTES
    classes = plan.nbytes_by_class()
    assert classes[BufferClass.CACHE] == 10 * PAGE_NBYTES
    assert classes[BufferClass.STATE] == 3 * (128 + 24)
    assert classes[BufferClass.COMPLETION] == 2 * 4 * (48 + 4 + 4)
    assert classes[BufferClass.WORKSPACE] == manifest.workspace_nbytes
    owned = sum(classes.values()) - WEIGHT_NBYTES
    check_fits(plan, owned)
    with pytest.raises(ContractError, match=r"memory: .*5.2 KiB beside its weights"):
        check_fits(plan, owned - 1)


def test_a_count_that_was_not_chosen_is_refused(manifest: Manifest) -> None:
    with pytest.raises(ContractError, match="CACHE_PAGES"):
        plan_memory(manifest, {LeadingCount.REQUEST_SLOTS: 1})


def test_available_memory_is_known_here() -> None:
    assert available_nbytes() > 0
