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


# Launches of a layer by the model's place among the geometries and rows.
LAUNCHES = {
    (0, 1): 6,  # the second weighing and the rotation are inside others
    (0, 32): 6,
    (1, 8): 6,
    (2, 1): 6,
    (2, 32): 7,  # rows enough to rotate apart
    (0, 512): 8,  # many: each is weighed by itself
    (0, 2048): 7,  # and rotated where it is projected
    (2, 512): 7,
    (1, 2048): 8,  # but for heads with norms
}


@pytest.mark.parametrize(("model", "rows"), LAUNCHES)
def test_launches_of_a_layer(model, rows):
    geometry = GEOMETRIES[model]
    assert len(lowered(geometry, rows, ways(geometry, rows)[0])) == LAUNCHES[model, rows]
