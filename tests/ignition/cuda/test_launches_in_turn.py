"""Launches that know what the launch before them leaves alone, and look it up before they wait: the
bits that they have by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda import test_scaled
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, lowered, run, run_in_turn
from tests.ignition.cuda.test_fused_kernels import decoding, normed, one_by_one
from tests.ignition.cuda.test_model_kernels import MODELS, linear
from tests.native import cuda_cases, layer_cases
from tests.native.launches import Case
from tests.native.packings import Packing

pytest.importorskip("triton", reason=WITHOUT_TRITON)

from ignition.kernels.cuda.launches import ARCHITECTURES, CatalogueLaunch
from ignition.kernels.cuda.lowerings import LOWERINGS

TINY = MODELS["tiny"]


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


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("window", [0, 70])
def test_rows_attend_by_themselves_once_they_are_selected(window: int, descending: bool) -> None:
    rng = np.random.default_rng(6)
    contexts, lengths, sample = [130, 5, 300, 7], [70, 5, 1, 2], [1, 0, 1, 1]
    packed = cuda_cases.attention_f16(
        rng, contexts=contexts, lengths=lengths, capacity=90, lane_capacity=5, window=window, **TINY
    )
    shared = ("rows", "positions", "slot", "page_table", "k_plane", "v_plane")
    rope = cuda_cases.rope_and_cache_f16(
        rng, rows=sum(lengths), capacity=90, table_pages=6, **TINY
    ).with_operands(**{name: packed.operands[name] for name in shared})
    lanes = np.array([len(lengths)], np.int32)
    selection = layer_cases.select_attending(
        rng, rows=4, capacity=5, packed_capacity=90, width=48, elements=64, dtype=7
    ).with_operands(
        rows=lanes, query_length=np.array([*lengths, 9], np.int32),
        sample=np.array([*sample, 1], np.int32), queries=rope.operands["queries"],
        positions=packed.operands["positions"], slot=packed.operands["slot"],
        out_queries=np.full((5, 64), cuda_cases.F16_NAN, np.uint16),
    )  # fmt: skip
    chosen = selection.operands
    operands = {n: a for n, a in packed.operands.items() if n not in ("lanes", "query_length")}
    operands |= {
        "rows": chosen["selected_rows"], "queries": chosen["out_queries"],
        "positions": chosen["out_positions"], "slot": chosen["out_slot"],
        "out": np.full((5, 128), 0xFF, np.uint8),
    }  # fmt: skip
    integers = {**packed.integers, "capacity": 5, "lane_capacity": 0}
    attention = Case(packed.kernel, operands, integers, packed.floats)
    alone = one_by_one([rope, selection, attention])
    found = run_in_turn([rope, selection, attention], descending=descending)
    for one, other in zip(found, alone, strict=True):
        for name in one:
            assert one[name].tobytes() == other[name].tobytes(), name
    assert found[1]["selected_rows"].tolist() == [3]
    # What they are where all rows attend, lane by lane.
    queries = found[0]["queries"]
    planes = {name: found[0][name] for name in ("k_plane", "v_plane")}
    every = run(packed.with_operands(queries=queries, **planes))["out"]
    for place, row in enumerate((69, 75, 77)):
        assert found[2]["out"][place].tobytes() == every[row].tobytes(), row
    assert (found[2]["out"][3:] == 0xFF).all()


@pytest.mark.parametrize(
    ("capacity", "kv_heads", "usual", "selected"),
    [(128, 8, 1, 8), (128, 3, 1, 21), (4, 2, 32, 32), (3, 8, 11, 32)],
)
def test_selected_rows_share_their_splits_among_more_programs(
    capacity: int, kv_heads: int, usual: int, selected: int
) -> None:
    """Of room for 128 lanes a prompt may need one, which then isn't left to one program a head."""
    rng = np.random.default_rng(7)
    case = cuda_cases.attention_f16(rng, contexts=[1], q_heads=24, kv_heads=kv_heads, head_dim=16)
    integers = {**case.integers, "capacity": capacity, "table_pages": 144}
    for rows, workers in ((False, usual), (True, selected)):
        launch = CatalogueLaunch(
            case.kernel, integers, case.floats, frozenset(case.operands), ARCHITECTURES["sm_90"],
            selected=rows,
        )  # fmt: skip
        (kernel,) = LOWERINGS[case.kernel](launch)
        assert kernel.grid == (kv_heads, workers, capacity)


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
