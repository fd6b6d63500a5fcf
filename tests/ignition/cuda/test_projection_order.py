"""Parts of a reduction are added in ascending order, whichever kernel has them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda.interpreted import WITHOUT_TRITON, lowered, run
from tests.native import layer_cases
from tests.native.packings import BF16_FORMAT, Packing

pytest.importorskip("triton", reason=WITHOUT_TRITON)

PARTS = 4
ONE, LARGE, MINUS_LARGE = 0x3F80, 0x4C80, 0xCC80  # 1 and ±2²⁶, as bf16


@pytest.mark.parametrize(
    ("kernel", "rows", "outputs", "width"),
    [
        ("project_narrow", 3, 64, 3072),
        ("project_few", 3, 704, 3072),
        ("project_many", 130, 64, 3072),
    ],
)
def test_parts_are_added_in_ascending_order(
    kernel: str, rows: int, outputs: int, width: int
) -> None:
    """2²⁶ − 2²⁶ + 1 is 1 from the left, and 0 in other orders: f32 has no 2²⁶ − 1."""
    case = layer_cases.linear(
        np.random.default_rng(1), Packing.ROWS_BF16, BF16_FORMAT,
        rows=rows, capacity=rows, width=width, outputs=outputs,
    )[0]  # fmt: skip
    (used,) = lowered(case)
    assert used.request.function.__name__ == kernel
    x = np.zeros((rows, PARTS, width // PARTS), np.uint16)
    x[:, :3, 0] = LARGE, MINUS_LARGE, ONE
    ones = np.full(outputs * width, ONE, np.uint16)
    given = {"x": x, "weight": ones}
    for name, content in given.items():
        operand = case.operands[name]
        given[name] = content.reshape(-1).view(operand.dtype).reshape(operand.shape)
    for descending in (False, True):
        out = run(case.with_operands(**given), descending=descending)["out"]
        np.testing.assert_array_equal(out[:rows], 1.0)
