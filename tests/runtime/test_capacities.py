"""Choosing slots and pages, and planning memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.contract import PreparedContract, decode
from helios.errors import ContractError
from helios.runtime.capacities import (
    Capacities,
    available_nbytes,
    beside_cache_nbytes,
    choose_cache_pages,
    choose_request_slots,
    page_nbytes,
    plan_memory,
)
from helios.runtime.manifest import BufferClass, LeadingCount, Manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.memory_fit import check_fits
from helios.runtime.selection import select
from helios.wording import show_size
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


@pytest.mark.clause("BOOT-7")
@pytest.mark.parametrize(("asked", "chosen"), [(None, 4), (1, 1), (4, 4)])
def test_request_slots_can_be_lowered(
    contract: PreparedContract, asked: int | None, chosen: int
) -> None:
    assert choose_request_slots(contract, asked) == chosen


@pytest.mark.parametrize("asked", [0, -1, 5])
def test_other_request_slots_are_refused(contract: PreparedContract, asked: int) -> None:
    with pytest.raises(ContractError, match="1 to 4"):
        choose_request_slots(contract, asked)


PAGES = [
    (Capacities(), PLENTY, 4, 4 * ONE_CONTEXT),  # every slot its whole context, shorter than 1024
    (Capacities(), PLENTY, 1, ONE_CONTEXT),
    (Capacities(), 4 * 10 * PAGE_NBYTES, 4, 10),  # a quarter of what is available
    (Capacities(), 0, 4, ONE_CONTEXT),  # but at least one context
    (Capacities(cache_nbytes=ONE_CONTEXT * PAGE_NBYTES), 0, 4, ONE_CONTEXT),
    (Capacities(cache_nbytes=8 * PAGE_NBYTES - 1), 0, 4, 7),
    (Capacities(cache_nbytes=1000 * PAGE_NBYTES), 0, 1, 1000),
    (Capacities(cache_share=0.25), 4 * 9 * PAGE_NBYTES + 3, 4, 9),
    (Capacities(cache_share=1.0), 12 * PAGE_NBYTES, 4, 12),
]


@pytest.mark.clause("BOOT-7")
@pytest.mark.parametrize(("asked", "available", "slots", "pages"), PAGES)
def test_cache_pages(
    contract: PreparedContract,
    manifest: Manifest,
    asked: Capacities,
    available: int,
    slots: int,
    pages: int,
) -> None:
    assert page_nbytes(manifest) == PAGE_NBYTES
    assert choose_cache_pages(contract, manifest, slots, asked, available, available) == pages


@pytest.mark.clause("BOOT-7")
def test_a_share_is_of_what_the_rest_of_the_model_leaves(
    contract: PreparedContract, manifest: Manifest
) -> None:
    beside = beside_cache_nbytes(manifest, 4)
    classes = select(contract, manifest, Capacities(), PLENTY).plan.nbytes_by_class()
    assert beside == sum(n for kind, n in classes.items() if kind is not BufferClass.CACHE)
    assert classes[BufferClass.WEIGHT] > 0
    available = beside + 2 * 10 * PAGE_NBYTES
    chosen = select(contract, manifest, Capacities(cache_share=0.5), available)
    assert chosen.cache_pages == 10
    # The preparation's own count, 24, plays no part.
    assert contract.cache_pages == 24


@pytest.mark.parametrize(
    "asked",
    [
        Capacities(cache_nbytes=0),
        Capacities(cache_nbytes=-1),
        Capacities(cache_nbytes=ONE_CONTEXT * PAGE_NBYTES - 1),
        Capacities(cache_share=1e-12),
    ],
)
def test_a_cache_smaller_than_one_context_is_refused(
    contract: PreparedContract, manifest: Manifest, asked: Capacities
) -> None:
    with pytest.raises(ContractError, match=r"24 tokens takes 6 pages. Ask for 1 MiB"):
        choose_cache_pages(contract, manifest, 4, asked, PLENTY, PLENTY)


@pytest.mark.parametrize("free", [-(3 << 30), 0, ONE_CONTEXT * PAGE_NBYTES - 1])
def test_memory_that_one_context_doesn_t_fit_into_is_refused_with_what_is_needed(
    contract: PreparedContract, manifest: Manifest, free: int
) -> None:
    """Also where the weights alone are more than there is."""
    taken = (5 << 30) - free
    with pytest.raises(ContractError) as refused:
        choose_cache_pages(contract, manifest, 4, Capacities(cache_share=1), 5 << 30, free)
    needed = taken + ONE_CONTEXT * PAGE_NBYTES
    assert str(refused.value) == (
        f"memory: the model takes {show_size(taken)}, its weights included, and one context of 24"
        f" tokens 384 B of cache: {show_size(needed)} in all; 5.00 GiB are free. Free some, use"
        " a device with more, or ask for fewer requests (--max-active)"
    )


def test_a_cache_of_its_own_size_is_refused_where_the_rest_doesn_t_fit(
    contract: PreparedContract, manifest: Manifest
) -> None:
    asked = Capacities(cache_nbytes=ONE_CONTEXT * PAGE_NBYTES)
    selection = select(contract, manifest, asked, PLENTY)
    said = (
        r"with its weights, and 384 B of cache at the least: .* 9 B are available\. Free some, use"
    )
    with pytest.raises(ContractError, match=said):
        check_fits(selection, 9, asked, holds_weights=True)


@pytest.mark.parametrize(
    "values",
    [
        {"cache_share": 0.0},
        {"cache_share": 1.5},
        {"cache_share": float("nan")},
        {"cache_share": 0.5, "cache_nbytes": 1},
    ],
)
def test_a_cache_size_that_is_none_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ContractError, match="cache size"):
        Capacities(**values)  # type: ignore[arg-type]


def test_a_long_context_takes_1024_tokens_a_slot_by_default(
    contract: PreparedContract, manifest: Manifest
) -> None:
    long = replace(contract, max_context_tokens=4096)
    assert choose_cache_pages(long, manifest, 8, Capacities(), PLENTY, PLENTY) == 8 * 256


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


def test_what_fits_to_the_byte_is_taken(contract: PreparedContract, manifest: Manifest) -> None:
    asked = Capacities(request_slots=3, cache_nbytes=10 * PAGE_NBYTES)
    selection = select(contract, manifest, asked, PLENTY)
    owned = sum(selection.plan.nbytes_by_class().values()) - WEIGHT_NBYTES
    check_fits(selection, owned, asked)
    check_fits(selection, owned + WEIGHT_NBYTES, asked, holds_weights=True)
    with pytest.raises(ContractError, match=r"memory: .*5.2 KiB beside its weights.* smaller"):
        check_fits(selection, owned - 1, asked)
    with pytest.raises(ContractError, match=r"memory: .*with its weights.* smaller cache"):
        check_fits(selection, owned + WEIGHT_NBYTES - 1, asked, holds_weights=True)


def test_a_cache_that_was_asked_for_and_doesn_t_fit_is_refused_with_what_is_left(
    contract: PreparedContract, manifest: Manifest
) -> None:
    asked = Capacities(cache_nbytes=999 << 40)
    selection = select(contract, manifest, asked, 8 << 30)
    with pytest.raises(ContractError) as refused:
        check_fits(selection, 8 << 30, asked)
    assert str(refused.value) == (
        "cache size: 999.00 TiB asked for, but of the 8.00 GiB of memory that are available the"
        " model leaves 8.00 GiB. Ask for 8191 MiB or less, or for a share of it, like"
        " --cache-memory 50%"
    )
    fitting = Capacities(cache_nbytes=8191 << 20)
    check_fits(select(contract, manifest, fitting, 8 << 30), 8 << 30, fitting)


def test_a_model_that_leaves_nothing_for_a_cache_is_refused_as_such(
    contract: PreparedContract, manifest: Manifest
) -> None:
    asked = Capacities(cache_nbytes=1 << 30)
    selection = select(contract, manifest, asked, 8 << 30)
    said = r"memory: the model takes 4\.7 KiB beside its weights, and 384 B of cache at the least"
    with pytest.raises(ContractError, match=said):
        check_fits(selection, 1 << 10, asked)


def test_where_no_cache_would_fit_a_smaller_one_is_no_remedy(
    contract: PreparedContract, manifest: Manifest
) -> None:
    """What is left would itself be refused, as less than one context."""
    long = replace(contract, max_context_tokens=1 << 20)
    least = (1 << 18) * PAGE_NBYTES
    needed = beside_cache_nbytes(manifest, 4) + least
    for nbytes in (least, 1 << 40):
        asked = Capacities(cache_nbytes=nbytes)
        selection = select(long, manifest, asked, needed - 1)
        with pytest.raises(ContractError) as refused:
            check_fits(selection, needed - 1, asked, holds_weights=True)
        assert str(refused.value) == (
            f"memory: the model takes {show_size(needed - least)} with its weights, and 16.0 MiB of"
            f" cache at the least: {show_size(needed)} in all; {show_size(needed - 1)} are"
            " available. Free some, use a device with more, or ask for fewer requests"
            " (--max-active)"
        )
    asked = Capacities(cache_nbytes=least)
    check_fits(select(long, manifest, asked, needed), needed, asked, holds_weights=True)


def test_a_count_that_was_not_chosen_is_refused(manifest: Manifest) -> None:
    with pytest.raises(ContractError, match="CACHE_PAGES"):
        plan_memory(manifest, {LeadingCount.REQUEST_SLOTS: 1})


def test_available_memory_is_known_here() -> None:
    assert available_nbytes() > 0
