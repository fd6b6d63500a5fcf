"""`attention` and `attention_bf16` against numpy, with pages out of order and out of range. Cases
are made for planes of f16: the other kernel gets the same values, rounded, in their places."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native import layer_cases
from tests.native.harness import INSTRUCTION_SETS, Case, run
from tests.native.packings import (
    BF16_FORMAT,
    Q8_FORMAT,
    Q8_PAIRS_FORMAT,
    Q16_FORMAT,
    decode,
    from_bf16,
    from_f16,
    to_bf16,
)

F64 = NDArray[np.float64]

both_kernels = pytest.mark.parametrize("bf16", [False, True])


def attend(case: Case, bf16: bool, instruction_set: str) -> NDArray[np.uint8]:
    """The output of `attention` or of `attention_bf16`."""
    return run(layer_cases.in_pairs(case) if bf16 else case, instruction_set)["out"]


def assert_attends(got: NDArray[np.float32], case: Case, bf16: bool) -> None:
    """`got [capacity, Hq, D]` is the softmax's result. In bf16 weights are rounded too, by 2^-9 at
    most, which is what a result may then be off by, relative to the largest value; in f32 nothing
    is but sums and exponentials."""
    expected = expected_attention(case, bf16)
    if not bf16:
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
        return
    error = np.abs(got - expected)
    assert error.max() <= 2**-9 * np.abs(from_f16(case.operands["v_plane"])).max()
    assert error.mean() <= 5e-4


def rounded_to_bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return from_bf16(to_bf16(values))


def expected_attention(case: Case, bf16: bool = False) -> F64:
    """Plain softmax over each row's own history, `[capacity, Hq, D]`; `bf16`: of rounded keys,
    values, and queries times scale times log2(e)."""
    integers, operands = case.integers, case.operands
    q_heads, kv_heads, head_dim = (integers[name] for name in ("q_heads", "kv_heads", "head_dim"))
    page_tokens, window = integers["page_tokens"], integers["window"]
    planes = [from_f16(operands[name]) for name in ("k_plane", "v_plane")]
    queries, scale = operands["qkv"], case.floats["scale"]
    if bf16:
        planes = [rounded_to_bf16(plane) for plane in planes]
        factor = np.float32(scale) * np.float32(1.44269504)
        queries, scale = rounded_to_bf16(queries * factor), float(np.log(2))
    keys, values = (plane.astype(np.float64) for plane in planes)
    out = np.zeros((integers["capacity"], q_heads, head_dim))
    for row, position in enumerate(operands["positions"]):
        table = operands["page_table"]
        slot = operands["slot"][row]
        if not (0 <= slot < len(table) and 0 <= position < table.shape[1] * page_tokens):
            continue
        first = max(0, position - window + 1) if window else 0
        history = np.arange(first, position + 1)
        pages, offsets = table[slot][history // page_tokens], history % page_tokens
        valid = (pages >= 0) & (pages < len(keys))
        pages = np.where(valid, pages, 0)
        k = keys[pages, :, :, offsets] * valid[:, None, None]
        v = values[pages, :, offsets] * valid[:, None, None]
        q = queries[row, : q_heads * head_dim].reshape(q_heads, head_dim)
        for head in range(q_heads):
            kv = head * kv_heads // q_heads
            scores = k[:, kv] @ q[head] * scale
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ v[:, kv] / weights.sum()
    return out


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("window", [0, 1, 21, 50])
@pytest.mark.parametrize(
    ("q_heads", "kv_heads", "head_dim", "page_tokens"),
    [(9, 3, 64, 32), (4, 4, 38, 20), (8, 1, 96, 16), (28, 1, 32, 48)],
)
def test_attention(
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int,
    window: int,
    instruction_set: str,
    bf16: bool,
) -> None:
    case = layer_cases.attention(
        np.random.default_rng(1), rows=9, capacity=9, q_heads=q_heads, kv_heads=kv_heads,
        head_dim=head_dim, page_tokens=page_tokens, window=window,
    )  # fmt: skip
    got = attend(case, bf16, instruction_set).view(np.float32).reshape(9, q_heads, head_dim)
    assert_attends(got, case, bf16)


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("format_", [BF16_FORMAT, Q8_FORMAT, Q16_FORMAT, Q8_PAIRS_FORMAT])
def test_attention_output_formats(format_: int, instruction_set: str, bf16: bool) -> None:
    make = {"rows": 5, "capacity": 5, "q_heads": 6, "kv_heads": 2, "head_dim": 64}
    plain = layer_cases.attention(np.random.default_rng(2), **make)
    formatted = layer_cases.attention(np.random.default_rng(2), **make, format_=format_)
    expected = attend(plain, bf16, instruction_set).view(np.float32)
    got = decode(attend(formatted, bf16, instruction_set), format_, 384)
    step = {BF16_FORMAT: 1 / 256, Q16_FORMAT: 1 / 65024}.get(format_, 1 / 253)
    allowed = step * np.abs(expected).max(axis=1, keepdims=True)
    assert np.all(np.abs(got - expected) <= allowed)


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_rows_without_a_place_are_zero(instruction_set: str, bf16: bool) -> None:
    case = layer_cases.attention(
        np.random.default_rng(3), rows=6, capacity=6, q_heads=2, kv_heads=2, head_dim=32
    )
    case.operands["positions"][:] = [-1, 0, 127, 128, 2**31 - 1, 5]
    case.operands["slot"][:] = [0, -1, 1, 1, 2, 3]
    got = attend(case, bf16, instruction_set).view(np.float32)
    assert np.any(got[2] != 0)
    assert not got[[0, 1, 3, 4, 5]].any()


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_pages_out_of_range_read_as_zero(instruction_set: str, bf16: bool) -> None:
    case = layer_cases.attention(
        np.random.default_rng(4), rows=6, capacity=6, q_heads=4, kv_heads=2, head_dim=32
    )
    case.operands["positions"][:] = [100, 101, 70, 31, 127, 33]
    case.operands["page_table"][:, 1] = [-1, len(case.operands["k_plane"]), 2**31 - 1]
    got = attend(case, bf16, instruction_set).view(np.float32).reshape(6, 4, 32)
    assert_attends(got, case, bf16)


# Head dimensions and pages that no vector divides, tiles of several vectors of queries, and a tile
# that ends within one.
PROMPTS = [(6, 2, 64, 32), (3, 1, 38, 20), (4, 4, 80, 24), (16, 1, 48, 16)]


def prompt(rows: int, last: int, **extents: int) -> Case:
    """Rows of one slot at consecutive positions, which share tiles."""
    case = layer_cases.attention(np.random.default_rng(5), rows=rows, capacity=rows, **extents)
    case.operands["positions"][:] = np.arange(last + 1 - rows, last + 1)
    case.operands["slot"][:] = 1
    return case


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("window", [0, 21])
@pytest.mark.parametrize("rows", [3, 50])
@pytest.mark.parametrize(("q_heads", "kv_heads", "head_dim", "page_tokens"), PROMPTS)
def test_attention_of_a_prompt(
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int,
    rows: int,
    window: int,
    missing: bool,
    instruction_set: str,
    bf16: bool,
) -> None:
    case = prompt(
        rows, 4 * page_tokens - 2, q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim,
        page_tokens=page_tokens, window=window,
    )  # fmt: skip
    if missing:
        case.operands["page_table"][1, 2] = -1
    out = attend(case, bf16, instruction_set)
    got = out.view(np.float32).reshape(rows, q_heads, head_dim)
    assert_attends(got, case, bf16)
    # In descending order no two rows share a tile.
    apart = case.with_operands(
        **{name: case.operands[name][::-1] for name in ("qkv", "positions", "slot")}
    )
    assert attend(apart, bf16, instruction_set)[::-1].tobytes() == out.tobytes()


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_rows_of_a_slot_may_leave_positions_out(instruction_set: str, bf16: bool) -> None:
    case = prompt(30, 100, q_heads=4, kv_heads=2, head_dim=32)
    case.operands["positions"][:] = np.cumsum(np.arange(30) % 3 % 2 + 1) + 7
    got = attend(case, bf16, instruction_set).view(np.float32).reshape(30, 4, 32)
    assert_attends(got, case, bf16)


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [4, 30])
def test_what_lies_past_a_position_does_not_matter(
    rows: int, instruction_set: str, bf16: bool
) -> None:
    # Pages are reused: past a row's position lie another request's tokens, or anything at all.
    case = prompt(rows, 40, q_heads=4, kv_heads=2, head_dim=32)
    clean = attend(case, bf16, instruction_set)
    second, *later = case.operands["page_table"][1][1:]
    for plane in ("k_plane", "v_plane"):
        case.operands[plane][later] = 0x7FC0
    case.operands["k_plane"][second, :, :, 9:] = 0x7FC0
    case.operands["v_plane"][second, :, 9:] = 0x7FC0
    np.testing.assert_array_equal(attend(case, bf16, instruction_set), clean)


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [4, 30])
def test_a_later_rows_infinity_stays_its_own(rows: int, instruction_set: str, bf16: bool) -> None:
    case = prompt(rows, 40, q_heads=4, kv_heads=2, head_dim=32)
    case.operands["v_plane"][case.operands["page_table"][1, 1], :, 8] = 0x7C00
    got = attend(case, bf16, instruction_set).view(np.float32)
    assert np.isfinite(got[:-1]).all()
    assert np.isinf(got[-1]).all()


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [4, 30])
def test_what_left_a_window_does_not_matter(rows: int, instruction_set: str, bf16: bool) -> None:
    case = prompt(rows, 40, q_heads=4, kv_heads=2, head_dim=32, window=6)
    first, second, *_ = case.operands["page_table"][1]
    # The last row's window begins at position 35.
    case.operands["v_plane"][first] = 0x7C00
    case.operands["v_plane"][second, :, :3] = 0x7C00
    got = attend(case, bf16, instruction_set).view(np.float32)
    assert np.isfinite(got[-1]).all()
    assert np.isinf(got[:-1]).all()
