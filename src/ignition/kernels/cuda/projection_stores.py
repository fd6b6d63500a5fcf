"""Sums of a projection on their way out: epilogues for a group of four warps.

The arithmetic is `projection.finish`'s. Sums lie as the tensor cores leave them: two neighbours a
thread, 32 bytes of f32 for four threads, which is what memory takes at once; bf16 is exchanged
between threads first, so that each stores 16 bytes.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _halves(sums, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Left and right half of sums, as they lie in registers."""
    parted = gl.permute(gl.reshape(sums, (ROWS, 2, COLUMNS // 2)), (0, 2, 1))
    left, right = gl.split(parted)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS // 2, 16])
    left = gl.convert_layout(left, layout, assert_trivial=True)
    return left, gl.convert_layout(right, layout, assert_trivial=True)


@gluon.jit
def finish_in_parts(
    sums, bias, out, first_row, first_output, live, BM: gl.constexpr, BN: gl.constexpr,
    N: gl.constexpr, EPILOGUE: gl.constexpr, BIAS: gl.constexpr,
):  # fmt: skip
    """Stores sums as the epilogue says, a quarter of the outputs after the other: all of a tile's
    residual would take as many registers again."""
    PARTS: gl.constexpr = 4 if BN >= 128 else 2
    PART: gl.constexpr = BN // PARTS
    parts = _halves(sums, BM, BN)
    if PARTS == 4:
        left, right = parts
        parts = _halves(left, BM, BN // 2) + _halves(right, BM, BN // 2)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PART, 16])
    # A part's residual comes while the one before is added, where registers are left for both.
    EARLY: gl.constexpr = N % 64 == 0 and not BIAS
    if EPILOGUE == 2 and EARLY:
        at, inside = _address(out, first_row, first_output, live, BM, PART, N, layout)
        residual = gl.load(at, mask=inside, other=0.0)
        for piece in gl.static_range(PARTS):
            last_at = at
            last_inside = inside
            last = residual
            if piece < PARTS - 1:
                column = first_output + (piece + 1) * PART
                at, inside = _address(out, first_row, column, live, BM, PART, N, layout)
                residual = gl.load(at, mask=inside, other=0.0)
            gl.store(last_at, parts[piece] + last, mask=last_inside)
    else:
        for piece in gl.static_range(PARTS):
            column = first_output + piece * PART
            part = _biased(parts[piece], bias, column, N, PART, layout, BIAS)
            if EPILOGUE == 3:
                pairs = gl.permute(gl.reshape(part, (BM, PART // 16, 2, 8)), (0, 1, 3, 2))
                gate, up = gl.split(pairs)
                gated = gl.reshape(gate / (1.0 + gl.exp(-gate)) * up, (BM, PART // 2))
                _put(gated, out, first_row, column // 2, live, BM, PART // 2, N // 2)
            elif EPILOGUE == 0:
                _put(part, out, first_row, column, live, BM, PART, N)
            else:
                at, inside = _address(out, first_row, column, live, BM, PART, N, layout)
                if EPILOGUE == 2:
                    part += gl.load(at, mask=inside, other=0.0)
                gl.store(at, part, mask=inside)


@gluon.jit
def _biased(
    part, bias, column, N: gl.constexpr, PART: gl.constexpr, LAYOUT: gl.constexpr,
    BIAS: gl.constexpr,
):  # fmt: skip
    if BIAS:
        at = column + gl.arange(0, PART, layout=gl.SliceLayout(0, LAYOUT))
        part += gl.load(bias + at, mask=at < N, other=0.0)[None, :]
    return part


@gluon.jit
def _address(
    out, first_row, column, live, BM: gl.constexpr, COLUMNS: gl.constexpr, WIDTH: gl.constexpr,
    LAYOUT: gl.constexpr,
):  # fmt: skip
    """Where elements lie, and which there are."""
    row = first_row + gl.arange(0, BM, layout=gl.SliceLayout(1, LAYOUT))
    at = column + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, LAYOUT))
    inside = (row < live)[:, None] & (at < WIDTH)[None, :]
    return out + row.to(gl.int64)[:, None] * WIDTH + at[None, :], inside


@gluon.constexpr_function
def _eight_side_by_side(rows, columns):
    """Eight columns a thread, where a thread's rows are the products'."""
    doubles = [1 << power for power in range(columns.bit_length() - 1)]
    registers = [[0, 1], [0, 2], [0, 4]]
    lanes = [[0, column] for column in doubles if 8 <= column < 32]
    # With less than 32 columns the lanes of a row have eight bytes or less each.
    if len(lanes) == 1:
        registers, lanes = registers[:2], [[0, 4], [0, 8]]
    registers += [[0, column] for column in doubles if column >= 32]
    registers += [[8, 0]] + [[64 << power, 0] for power in range((rows // 64).bit_length() - 1)]
    return gl.DistributedLinearLayout(
        registers, [*lanes, [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [rows, columns]
    )


@gluon.jit
def _put(
    result, out, first_row, column, live, BM: gl.constexpr, COLUMNS: gl.constexpr,
    WIDTH: gl.constexpr,
):  # fmt: skip
    """Stores bf16, 16 bytes a thread."""
    layout: gl.constexpr = _eight_side_by_side(BM, COLUMNS)
    whole = gl.convert_layout(result.to(out.dtype.element_ty), layout)
    at, inside = _address(out, first_row, column, live, BM, COLUMNS, WIDTH, layout)
    gl.store(at, whole, mask=inside)
