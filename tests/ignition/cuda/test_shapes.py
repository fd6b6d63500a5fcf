"""Shapes that no kernel takes are refused by the lowering, before anything is compiled."""

from __future__ import annotations

import numpy as np
import pytest

from helios.errors import ContractError
from tests.ignition.cuda.interpreted import WITHOUT_TRITON
from tests.ignition.cuda.lowered_cases import Launch, kernels_of
from tests.native import cuda_cases
from tests.native.launches import Case

pytest.importorskip("triton", reason=WITHOUT_TRITON)


def attention(q_heads: int, kv_heads: int, head_dim: int) -> Case:
    rng = np.random.default_rng(0)
    heads = {"q_heads": q_heads, "kv_heads": kv_heads, "head_dim": head_dim}
    return cuda_cases.attention_f16(rng, contexts=[3], **heads)


def lower(case: Case) -> int:
    names = {name: name for name in case.operands}
    launch = Launch(case.kernel, case.integers, case.floats, names)
    return len(kernels_of(case.kernel, [launch], list(names), ()))


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ((4, 2, 80), "heads are 80 wide. Kernels of a GPU take heads of 16, 32, 64, 128 or 256"),
        ((4, 2, 512), "heads are 512 wide"),
        ((129, 1, 16), "129 query heads share 1 key heads.* 128 query heads .* 16 wide"),
        ((65, 1, 256), "65 query heads share 1 key heads.* 64 query heads .* 256 wide"),
    ],
)
def test_heads_that_no_kernel_takes_are_refused(heads: tuple[int, int, int], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        lower(attention(*heads))


@pytest.mark.parametrize("heads", [(128, 1, 16), (128, 1, 128), (64, 1, 256), (7, 7, 32)])
def test_those_at_the_limit_are_taken(heads: tuple[int, int, int]) -> None:
    assert lower(attention(*heads)) == 1
