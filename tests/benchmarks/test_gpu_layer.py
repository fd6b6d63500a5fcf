"""What `gpu_layer` plans before it has a GPU: launches of a layer, in every way that is tried."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the extra cuda-prepare isn't installed")

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from gpu_parts.geometries import GEOMETRIES
from gpu_parts.layer_cubins import described
from gpu_parts.layer_ways import lowered, ways

ROWS = (1, 8, 32, 128, 512)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.name)
@pytest.mark.parametrize("rows", ROWS)
def test_every_way_does_the_whole_layer(geometry, rows):
    for way in ways(geometry, rows):
        kernels = lowered(geometry, rows, way)
        written = [place for _, window in kernels for p in window for place in p.places.values()]
        assert {"x", "attended", "gated", "k_plane"} <= set(written)
        for kernel, window in kernels:
            plan = described(kernel, window)
            assert len(plan["arguments"]) == len(kernel.request.arguments)


def test_a_decoding_layer_is_seven_launches_and_more_rows_rotate_apart():
    small, middle, large = GEOMETRIES
    assert len(lowered(small, 1, ways(small, 1)[0])) == 7
    assert len(lowered(small, 32, ways(small, 32)[0])) == 7
    assert len(lowered(middle, 8, ways(middle, 8)[0])) == 7
    assert len(lowered(large, 1, ways(large, 1)[0])) == 7
    assert len(lowered(large, 32, ways(large, 32)[0])) == 8
    assert len(lowered(small, 512, ways(small, 512)[0])) == 8
