"""`NativeModel.load`: graphs selected, ranks loaded, cache backed, and the geometry shown."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest

from helios.contract.enums import Operation
from helios.core import OpenedCore, open_core
from helios.core import format as core_format
from helios.errors import ContractError, CoreError
from helios.runtime import Capacities, DeviceOptions, NativeModel, RankPeers
from helios.schema import core_pb2
from tests.core.sample_core import NAMESPACE, PUBLIC_KEY, write_core
from tests.runtime.sample_manifest import sample_weights
from tests.runtime.test_model_runtime import (
    admitted,
    core_with_programs,
    next_token,
    prompt,
    run,
)

ONE_THREAD = DeviceOptions(threads=1)


def opened(folder: Path) -> OpenedCore:
    return open_core(folder, accept=NAMESPACE, publisher_key=PUBLIC_KEY)


@pytest.fixture
def core(tmp_path: Path) -> OpenedCore:
    return opened(core_with_programs(tmp_path / "core"))


@pytest.mark.clause("BOOT-1", "BOOT-11")
def test_loading_selects_graphs_backs_the_cache_and_shows_the_geometry(core: OpenedCore) -> None:
    asked = Capacities(request_slots=2, cache_nbytes=9 * 64)
    with NativeModel.load(core, options=ONE_THREAD, capacities=asked) as model:
        (geometry,) = model.manifests
        assert (geometry.request_slots, geometry.cache_pages) == (2, 9)
        assert (geometry.cache_nbytes, geometry.speculative_width) == (9 * 64, 0)
        assert [p.name for p in geometry.of(Operation.DECODE)] == ["decode.b1", "decode.b2"]
        assert model.runtime.geometry == geometry
        assert model.runtime.memory["cache"] == geometry.cache_nbytes
        assert model.runtime.read_buffer("cache.k.0").shape[0] == 9
        run(model.runtime, "initialize.b4", admitted(0))
        answer = run(model.runtime, "prefill.p8", prompt(0, (4,)))
        assert answer.lanes[0].tokens == (next_token(4),)


@pytest.mark.clause("BOOT-7")
def test_the_resulting_cache_replaces_the_prepared_count(core: OpenedCore) -> None:
    assert core.contract.cache_pages == 24
    asked = Capacities(cache_share=1e-6)
    with NativeModel.load(core, options=ONE_THREAD, capacities=asked) as model:
        geometry = model.manifests[0]
        assert geometry.cache_pages != core.contract.cache_pages
        assert geometry.cache_pages * 64 == geometry.cache_nbytes


@pytest.mark.parametrize("peers", list(RankPeers))
def test_one_rank_needs_no_peers(core: OpenedCore, peers: RankPeers) -> None:
    with NativeModel.load(core, options=ONE_THREAD, peers=peers) as model:
        assert len(model.manifests) == 1


@pytest.mark.clause("BOOT-11")
def test_ranks_of_other_hosts_are_refused_by_name(tmp_path: Path) -> None:
    def two_ranks(body: core_pb2.CoreBody) -> None:
        ranks = body.deployment.targets[0].ranks
        ranks.add().CopyFrom(ranks[0])

    core = opened(write_core(tmp_path / "core", two_ranks))
    with pytest.raises(ContractError, match=r"'cpu' has 2 ranks.*as processes on other hosts"):
        NativeModel.load(core, peers=RankPeers.PROCESSES)


@pytest.mark.clause("BOOT-6")
def test_missing_variants_fail_start_up(core: OpenedCore) -> None:
    with pytest.raises(ContractError, match="request slots: 5 asked for"):
        NativeModel.load(core, capacities=Capacities(request_slots=5))
    with pytest.raises(ContractError, match="speculative width: 2 asked for"):
        NativeModel.load(core, capacities=Capacities(speculative_width=2))


def test_a_failed_load_leaves_nothing_mapped(tmp_path: Path) -> None:
    folder = core_with_programs(tmp_path / "core")
    name = core_format.weight_content_name(core_format.chunk_digests(sample_weights()["weights"]))
    path = folder / core_format.RESOURCE_FOLDER / name
    path.write_bytes(b"\x01" + path.read_bytes()[1:])
    with pytest.raises(CoreError):
        NativeModel.load(opened(folder), options=ONE_THREAD)
    assert name not in Path("/proc/self/maps").read_text()


def test_closing_twice_is_fine_and_keeps_nothing(core: OpenedCore) -> None:
    model = NativeModel.load(core, options=ONE_THREAD)
    runtime = weakref.ref(model.runtime)
    run(model.runtime, "initialize.b4", admitted(0))
    model.close()
    model.close()
    del model
    assert runtime() is None
