"""A row attends alike in a prompt, in a chunk of it and by itself: with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda.interpreted import WITHOUT_TRITON, run
from tests.native import cuda_cases
from tests.native.launches import Case
from tests.native.states import i32

pytest.importorskip("triton", reason=WITHOUT_TRITON)

# Contexts at the ends of pages (64) and splits (256), rows of each, heads and windows at and
# between them.
SHAPES = {
    "one split": ([64, 65, 1], [64, 2, 1], (9, 3, 64), 0),
    "splits": ([257, 319], [3, 66], (7, 1, 32), 0),
    "a window of a page": ([257, 130], [66, 65], (4, 2, 16), 64),
    "a window of one": ([257, 2], [3, 2], (2, 2, 128), 1),
    "a window of a split": ([320, 383], [65, 2], (6, 2, 64), 257),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_rows_by_themselves_have_their_bits_in_prompts(name: str, descending: bool) -> None:
    contexts, lengths, (q_heads, kv_heads, head_dim), window = SHAPES[name]
    rng = np.random.default_rng(len(name))
    prompts = cuda_cases.attention_f16(
        rng, contexts=contexts, lengths=lengths, capacity=sum(lengths) + 5,
        lane_capacity=len(contexts) + 2, q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim,
        window=window,
    )  # fmt: skip
    together = run(prompts, descending=descending)["out"]
    given = prompts.operands
    last = np.cumsum(lengths) - 1
    rows = np.unique([*last, *(last - np.array(lengths) + 1), *(last - np.array(lengths) // 2)])
    operands = {n: a for n, a in given.items() if n not in ("lanes", "query_length")}
    operands |= {name: given[name][rows] for name in ("queries", "positions", "slot")}
    operands |= {"rows": i32(len(rows)), "out": np.full_like(given["out"][rows], 0xFF)}
    integers = {**prompts.integers, "capacity": len(rows), "lane_capacity": 0}
    apart = Case(prompts.kernel, operands, integers, prompts.floats)
    alone = run(apart, descending=descending)["out"]
    for place, row in enumerate(rows):
        assert alone[place].tobytes() == together[row].tobytes(), row
