"""Which prompts get the attention whose warps share the work, and that it compiles.

The interpreter doesn't run Gluon: bits are compared on a GPU, by the trials of `tests.gpu`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ignition.cuda.interpreted import WITHOUT_TRITON

pytest.importorskip("triton", reason=WITHOUT_TRITON)

from helios.kernels.catalogue import ActivationFormat
from ignition.kernels.cuda.launches import ARCHITECTURES, CatalogueLaunch
from ignition.kernels.cuda.lowerings import LOWERINGS

if TYPE_CHECKING:
    from ignition.kernels.cuda.launches import CudaKernel

_OPERANDS = frozenset(
    {"rows", "queries", "positions", "slot", "lanes", "query_length", "page_table"}
    | {"k_plane", "v_plane", "out"}
)
_GROUPED = "attend_prefill_in_groups"


def _lowered(
    *,
    capacity: int,
    q_heads: int = 32,
    kv_heads: int = 8,
    head_dim: int = 128,
    window: int = 0,
    architecture: str = "sm_90",
) -> CudaKernel:
    integers = {
        "capacity": capacity, "lane_capacity": 128, "q_heads": q_heads, "kv_heads": kv_heads,
        "head_dim": head_dim, "page_tokens": 64, "table_pages": 144, "window": window,
        "format": ActivationFormat.BF16,
    }  # fmt: skip
    launch = CatalogueLaunch(
        "attention_f16", integers, {"scale": 0.125}, _OPERANDS, ARCHITECTURES[architecture]
    )
    (kernel,) = LOWERINGS["attention_f16"](launch)
    return kernel


def test_many_rows_without_a_window_are_shared() -> None:
    kernel = _lowered(capacity=2048)
    assert kernel.request.function.__name__ == _GROUPED
    # Tiles of 32 tokens, one more for each lane.
    assert kernel.grid == (8, 2048 // 32 + 128, 1)


@pytest.mark.parametrize(
    "launch",
    [
        {"capacity": 512},
        {"capacity": 2048, "window": 1024},
        {"capacity": 4096, "head_dim": 32},
        {"capacity": 4096, "head_dim": 256},
        {"capacity": 4096, "architecture": "sm_100"},  # whose instructions are others
    ],
)
def test_other_prompts_are_not(launch: dict[str, int]) -> None:
    assert _lowered(**launch).request.function.__name__ == "attend_prefill"


@pytest.mark.parametrize(("q_heads", "kv_heads", "head_dim"), [(32, 8, 128), (9, 3, 64)])
def test_it_compiles_for_three_groups_of_warps(q_heads: int, kv_heads: int, head_dim: int) -> None:
    from ignition.kernels.cuda.compile import compile

    kernel = _lowered(capacity=8192, q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim)
    compiled = compile(kernel.request)
    assert compiled.threads == 3 * 128
    # Three stages of keys and values, 128 rows of queries, and barriers.
    blocks = 2 * head_dim * (3 * 2 * 64 + 128)
    assert blocks < compiled.shared_nbytes < blocks + 1024
    assert {d.name: d.box for d in compiled.descriptors} == dict.fromkeys(
        ("keys", "values"), (64, 64)
    )
