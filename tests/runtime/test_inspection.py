"""Inspection rows, and that they tell what loading would really take."""

from __future__ import annotations

import pytest

from helios.contract import PreparedContract, decode
from helios.errors import ContractError
from helios.runtime.devices.null import NullDevice
from helios.runtime.inspection import launch_rows, memory_report, program_rows
from helios.runtime.manifest import Manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import Capacities, ModelRuntime
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import sample_manifest, sample_weights


@pytest.fixture(scope="module")
def contract() -> PreparedContract:
    return decode(sample_contract())


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return decode_manifest(sample_manifest())


@pytest.mark.parametrize("capacities", [Capacities(), Capacities(2, 64 * 7)])
def test_memory_is_what_loading_takes(
    contract: PreparedContract, manifest: Manifest, capacities: Capacities
) -> None:
    report = memory_report(manifest, contract, capacities, available_nbytes=1 << 40)
    runtime = ModelRuntime.from_parts(
        contract, sample_manifest(), sample_weights(), capacities=capacities, device=NullDevice()
    )
    assert {row.buffer_class: row.nbytes for row in report.classes} == dict(runtime.memory)
    assert report.request_slots == runtime.geometry.request_slots
    assert report.cache_pages == runtime.geometry.cache_pages
    assert report.total_nbytes == sum(runtime.memory.values())
    assert sum(row.buffers for row in report.classes) == len(manifest.buffers)
    assert (report.page_tokens, report.page_nbytes) == (4, 64)


def test_impossible_capacities_are_refused_as_at_load(
    contract: PreparedContract, manifest: Manifest
) -> None:
    with pytest.raises(ContractError, match="request slots"):
        memory_report(manifest, contract, Capacities(request_slots=9), 1 << 40)


def test_every_program_has_a_row(manifest: Manifest) -> None:
    rows = {row.name: row for row in program_rows(manifest, 2)}
    assert list(rows) == [program.name for program in manifest.programs]
    assert [name for name, row in rows.items() if not row.selected] == ["decode.b4"]
    row = rows["prefill.p16"]
    assert (row.operation, row.batch_capacity, row.packed_token_capacity) == ("PREFILL", 4, 16)
    assert (row.launches, row.completion) == (6, "tokens")


def test_launches_read_like_calls(manifest: Manifest) -> None:
    rows = launch_rows(manifest, "decode.b1")
    assert [row.kernel for row in rows] == [
        *("scatter_i32", "load_pending", "embed"),
        *("linear", "sample", "commit"),
    ]
    embed = rows[2]
    assert embed.index == 2
    assert embed.operands == ("rows=in.live_rows r", "tokens=pending r", "table=table r", "out=x w")
    assert embed.attributes == ("capacity=1", "vocab=50", "width=8", "packing=2", "scale=1")
    assert not any("lane=" in operand for operand in rows[4].operands)


def test_an_unknown_program_is_refused_with_the_known_ones(manifest: Manifest) -> None:
    with pytest.raises(ContractError, match=r"decode\.b9: .*There are initialize\.b4"):
        launch_rows(manifest, "decode.b9")
