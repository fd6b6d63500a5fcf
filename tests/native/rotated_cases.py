"""Projections of many rows and the rotation that reads them, with whatever a row may have that is
stored nowhere."""

from __future__ import annotations

import numpy as np

from tests.native import cuda_cases
from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT, Packing, encode

_EPSILON = 1e-5


def rotated_projection(
    rng: np.random.Generator,
    *,
    rows: int,
    capacity: int,
    width: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    weighed: bool = False,
    bias: bool = False,
    norms: bool = False,
    exact: bool = True,
) -> list[Case]:
    """A projection and its rotation. `exact` sums are the same in whatever order products are
    added. Of the first rows some are inert, some have slots, positions or pages that there aren't;
    rows from the live ones on hold poison."""
    slots, table_pages = 4, max(4, -(-capacity // cuda_cases.PAGE_TOKENS))
    rope = cuda_cases.rope_and_cache_f16(
        rng, rows=rows, capacity=capacity, q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim,
        norms=norms, slots=slots, table_pages=table_pages,
    )  # fmt: skip
    given = rope.operands
    place = rng.choice(slots * table_pages * cuda_cases.PAGE_TOKENS, capacity, replace=False)
    slot, position = np.divmod(place, table_pages * cuda_cases.PAGE_TOKENS)
    given["slot"][:], given["positions"][:] = slot, position
    given["positions"][:4] = [-1, -(2**31), table_pages * cuda_cases.PAGE_TOKENS, 2**31 - 1]
    given["slot"][4:8] = [-1, slots, 2**31 - 1, -(2**31)]
    # A page that there isn't, three times, each for some row.
    of_nowhere = [-1, len(given["k_plane"]), 2**31 - 1]
    given["slot"][8:11], given["positions"][8:11] = slots - 1, np.arange(3) * cuda_cases.PAGE_TOKENS
    given["page_table"][slots - 1, :3] = of_nowhere
    elsewhere = (given["slot"] == slots - 1) & (np.arange(capacity) > 10)
    given["positions"][elsewhere] = -1
    given["positions"][rows:] = rng.integers(0, 64, capacity - rows)
    outputs = given["qkv"].shape[1]
    if exact:
        x = rng.integers(-8, 9, (capacity, width)).astype(np.float32)
        factors = rng.integers(-4, 5, (outputs, width)).astype(np.float32) / np.float32(8)
        weight = encode(factors, BF16_FORMAT).reshape(-1)
    else:
        x = rng.standard_normal((capacity, width), np.float32)
        # Of magnitudes from 1/8 to 2.
        bits = rng.integers(0, 1 << 16, (outputs, width), np.uint16)
        weight = ((bits & 0x81FF) | 0x3E00).view(np.uint8).reshape(-1)
    x[rows:] = np.nan
    operands: dict[str, Array] = {
        "rows": given["rows"],
        "x": encode(x, BF16_FORMAT),
        "weight": weight,
        "out": np.full((capacity, outputs), np.nan, np.float32),
    }
    if bias:
        operands["bias"] = rng.standard_normal(outputs, np.float32) * 3
    integers = {
        "capacity": capacity, "width": width, "outputs": outputs,
        "packing": int(Packing.ROWS_BF16), "format": BF16_FORMAT,
    }  # fmt: skip
    if weighed:
        squares = rng.uniform(0.25, 4, (capacity, 1)).astype(np.float32) * np.float32(width)
        squares[0], squares[rows:] = 0, np.nan
        operands["squares"] = squares
        projection = Case(
            "linear_weighed", operands, {**integers, "blocks": 1}, {"epsilon": _EPSILON}
        )
    else:
        projection = Case("linear", operands, {**integers, "accumulate": 0})
    return [projection, rope.with_operands(rows=operands["rows"], qkv=operands["out"])]
