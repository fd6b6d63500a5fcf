"""What lowerings are told of the launch before theirs: which operands it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel, Fusion, NeighbouringLaunch
from ignition.preparation.checkpoints import open_checkpoint
from tests.ignition import lowered as fakes
from tests.ignition.lowered import Recorded

PLACES = {"rows", "positions", "slot", "page_table"}


@pytest.fixture
def recorded(checkpoint_folder: Callable[[str], Path]) -> Recorded:
    return Recorded(open_checkpoint(checkpoint_folder("llama")))


def test_operands_that_the_launch_before_does_not_write_are_settled(recorded: Recorded) -> None:
    seen: list[CatalogueLaunch] = []

    def noting(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
        seen.append(launch)
        return fakes.any_kernel(launch)

    recorded.lower(lowerings=dict.fromkeys(fakes.LOWERINGS, noting))
    rotations = [launch for launch in seen if launch.kernel == "rope_and_cache_f16"]
    attentions = [launch for launch in seen if launch.kernel == "attention_f16"]
    assert rotations
    assert attentions
    for launch in rotations:
        assert launch.settled >= PLACES
        assert "qkv" not in launch.settled
    # What selects rows says where they lie.
    selected = [launch for launch in attentions if "rows" not in launch.settled]
    assert {launch.integers["capacity"] for launch in selected} == {2, 3}
    for launch in attentions:
        assert launch.selected == (launch in selected)
    for launch in selected:
        assert not {"positions", "slot", "queries"} & launch.settled
        assert launch.settled >= {"page_table", "k_plane", "v_plane"}
    for launch in attentions:
        if launch in selected:
            continue
        assert launch.settled >= PLACES
        assert not {"queries", "k_plane", "v_plane"} & launch.settled
    # Before a program's first launch comes what stages its inputs, which doesn't wait.
    assert not seen[0].settled


def test_what_any_launch_of_a_fusion_writes_is_not_settled_after_it(recorded: Recorded) -> None:
    settled: list[frozenset[str]] = []
    fused: list[NeighbouringLaunch] = []

    def noting(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
        if launch.integers["accumulate"] and fused:
            settled.append(launch.settled)
        fused.clear()
        return fakes.any_kernel(launch)

    def fuse(window: Sequence[NeighbouringLaunch]) -> tuple[CudaKernel, ...]:
        fused.extend(window)
        return fakes.any_kernel(window[0].launch)

    # The residual, to which the projection down adds, is written by the first of these.
    fusions = [Fusion(("linear", "weigh", "linear_silu_mul_weighed"), fuse)]
    recorded.lower(fusions, {**fakes.LOWERINGS, "linear": noting})
    assert settled
    assert all("out" not in names and "rows" in names for names in settled)


def test_a_fusion_knows_it_of_its_first_launch(recorded: Recorded) -> None:
    windows: list[Sequence[NeighbouringLaunch]] = []

    def noting(window: Sequence[NeighbouringLaunch]) -> None:
        windows.append(window)

    recorded.lower([Fusion(("rope_and_cache_f16", "attention_f16"), noting)])
    assert windows
    for rope, attention in windows:
        assert rope.launch.settled >= PLACES
        assert not attention.launch.settled
