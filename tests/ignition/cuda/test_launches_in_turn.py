"""Launches that know what the launch before them leaves alone, and look it up before they wait: the
bits that they have by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda import test_scaled
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, lowered, run, run_in_turn
from tests.ignition.cuda.test_fused_kernels import decoding, normed, one_by_one
from tests.ignition.cuda.test_model_kernels import linear
from tests.native.packings import Packing

pytest.importorskip("triton", reason=WITHOUT_TRITON)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"model": "tiny", "contexts": [1, 0, 64, 300], "capacity": 5},
        {"model": "0.6B", "contexts": [65, 384, 300], "capacity": 3, "past_the_table": True},
        {"model": "135M", "contexts": [300, 9, 65], "window": 70},
    ],
)
def test_places_are_looked_up_before_the_wait(options: dict, descending: bool) -> None:
    options = dict(options)
    past = options.pop("past_the_table", False)
    cases = decoding(**options)
    if past:
        cases[2].operands["positions"][2] = 384
    alone = one_by_one(cases)
    cases[1] = cases[1].with_operands(x=alone[0]["out"])
    found = run_in_turn(cases[1:], descending=descending)
    for name in ("k_plane", "v_plane", "queries"):
        assert found[1][name].tobytes() == alone[2][name].tobytes(), name
    assert found[2]["out"].tobytes() == alone[3]["out"].tobytes()


def test_a_row_whose_splits_would_take_too_much_memory_stays_with_one_program() -> None:
    cases = decoding("tiny", contexts=[1, 300, 384])
    alone = run(cases[3])
    # Rows of a page table that is as long as addresses allow: nobody reads the entries.
    (kernel,) = lowered(cases[3].with_integers(table_pages=1 << 20))
    assert kernel.request.constants["ALONE"]
    assert kernel.grid[1] == 1
    found = run(cases[3], lowering="tests.ignition.cuda.attention_variants:alone")
    assert found["out"].tobytes() == alone["out"].tobytes()


@pytest.mark.parametrize(
    ("kernel", "packing", "extents"),
    [
        ("project_many", Packing.ROWS_BF16, {"rows": 70, "capacity": 131, "outputs": 72}),
        ("project_few", Packing.ROWS_BF16, {"rows": 3, "capacity": 5, "outputs": 32_768}),
        ("project_scaled", Packing.ROWS_Q8, {"rows": 3, "capacity": 5, "outputs": 72}),
    ],
)
def test_live_rows_are_counted_before_the_wait(
    kernel: str, packing: Packing, extents: dict[str, int]
) -> None:
    rng = np.random.default_rng(4)
    if packing == Packing.ROWS_BF16:
        product = linear(rng, width=64, **extents)
    else:
        product = test_scaled.linear(rng, packing, width=64, **extents)
    assert lowered(product)[0].request.function.__name__ == kernel
    cases = list(normed(product))
    alone = one_by_one(cases)
    found = run_in_turn(cases)
    assert found[1]["out"].tobytes() == alone[1]["out"].tobytes()
