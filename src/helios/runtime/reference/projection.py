"""Reference kernels that multiply by a packed matrix or look rows up in one."""

from __future__ import annotations

import numpy as np

from helios.kernels.catalogue import ROW_GROUP, TILE_OUTPUTS
from helios.runtime.manifest import ROW_PACKINGS
from helios.runtime.reference.arrays import F32, I32, gather, live_rows, rows_of
from helios.runtime.reference.normalisation import inverse_roots
from helios.runtime.reference.unpack import PackedMatrix


def embed(
    rows: I32, tokens: I32, table: PackedMatrix, out: F32,
    *, capacity: int, vocab: int, width: int, packing: int, scale: float,
) -> None:  # fmt: skip
    """`out[r] = scale · table[tokens[r]]`."""
    live = live_rows(rows, capacity)
    found = gather(table.matrix(packing, vocab, width), tokens[:live])
    rows_of(out, live, width)[:] = found * np.float32(scale)


def linear(
    rows: I32, x: F32, weight: PackedMatrix, bias: F32 | None, out: F32,
    *, capacity: int, width: int, outputs: int, packing: int, format: int, accumulate: int,
) -> None:  # fmt: skip
    """`out = x Wᵀ + bias`, or `out += x Wᵀ + bias` where `accumulate` is 1."""
    live = live_rows(rows, capacity)
    product = rows_of(x, live, width) @ weight.matrix(packing, outputs, width).T
    if bias is not None:
        product += bias[:outputs]
    target = rows_of(out, live, outputs)
    if accumulate:
        target += product
    else:
        target[:] = product


def linear_tuned(
    rows: I32, x: F32, weight: PackedMatrix, bias: F32 | None, out: F32, tuning: I32,
    *, capacity: int, width: int, outputs: int, packing: int, format: int, accumulate: int,
) -> None:  # fmt: skip
    """`linear`: a blocking changes no result."""
    linear(
        rows, x, weight, bias, out, capacity=capacity, width=width, outputs=outputs,
        packing=packing, format=format, accumulate=accumulate,
    )  # fmt: skip


def linear_weighed(
    rows: I32, x: F32, squares: F32, weight: PackedMatrix, bias: F32 | None, out: F32,
    *, capacity: int, width: int, outputs: int, packing: int, format: int, blocks: int,
    epsilon: float,
) -> None:  # fmt: skip
    """`out = x Wᵀ / rms + bias` of weighed rows."""
    live = live_rows(rows, capacity)
    product = rows_of(x, live, width) @ weight.matrix(packing, outputs, width).T
    product *= inverse_roots(squares, live, width, blocks, epsilon)
    if bias is not None:
        product += bias[:outputs]
    rows_of(out, live, outputs)[:] = product


def linear_silu_mul(
    rows: I32, x: F32, weight: PackedMatrix, out: F32,
    *, capacity: int, width: int, outputs: int, packing: int, format: int, out_format: int,
) -> None:  # fmt: skip
    """`silu(gate) · up`; the matrix holds gate and up rows in turn, a tile or a group at a time."""
    live = live_rows(rows, capacity)
    both = rows_of(x, live, width) @ weight.matrix(packing, 2 * outputs, width).T
    rows_of(out, live, outputs)[:] = _gated(both, packing, outputs)


def linear_silu_mul_weighed(
    rows: I32, x: F32, squares: F32, weight: PackedMatrix, out: F32,
    *, capacity: int, width: int, outputs: int, packing: int, format: int, out_format: int,
    blocks: int, epsilon: float,
) -> None:  # fmt: skip
    """`linear_silu_mul` of weighed rows, whose products are divided by their rms."""
    live = live_rows(rows, capacity)
    both = rows_of(x, live, width) @ weight.matrix(packing, 2 * outputs, width).T
    both *= inverse_roots(squares, live, width, blocks, epsilon)
    rows_of(out, live, outputs)[:] = _gated(both, packing, outputs)


def _gated(both: F32, packing: int, outputs: int) -> F32:
    """`silu(gate) · up` of products [rows, 2 outputs]."""
    live = len(both)
    together = ROW_GROUP if packing in ROW_PACKINGS else TILE_OUTPUTS
    pairs = both.reshape(live, outputs // together, 2, together)
    gate, up = pairs[:, :, 0], pairs[:, :, 1]
    # exp(−gate) overflows to infinity for very negative gates, where silu is rightly −0.
    with np.errstate(over="ignore"):
        result: F32 = (gate / (1 + np.exp(-gate)) * up).reshape(live, outputs)
    return result


def linear_silu_mul_tuned(
    rows: I32, x: F32, weight: PackedMatrix, out: F32, tuning: I32,
    *, capacity: int, width: int, outputs: int, packing: int, format: int, out_format: int,
) -> None:  # fmt: skip
    """`linear_silu_mul`: a blocking changes no result."""
    linear_silu_mul(
        rows, x, weight, out, capacity=capacity, width=width, outputs=outputs,
        packing=packing, format=format, out_format=out_format,
    )  # fmt: skip


def tune(x: F32, weight: PackedMatrix, out: F32, choice: I32, **attributes: int) -> None:
    """The default: the reference has one way to multiply, and nothing to measure."""
    choice[0] = 0
