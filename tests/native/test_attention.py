"""`rope_and_cache` and `attention` against numpy, with pages out of order and out of range."""

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
    from_f16,
    to_f16,
)

F64 = NDArray[np.float64]


def expected_attention(case: Case) -> F64:
    """Plain softmax over each row's own history, `[capacity, Hq, D]`."""
    integers, operands = case.integers, case.operands
    q_heads, kv_heads, head_dim = (integers[name] for name in ("q_heads", "kv_heads", "head_dim"))
    page_tokens, window = integers["page_tokens"], integers["window"]
    keys = from_f16(operands["k_plane"]).astype(np.float64)
    values = from_f16(operands["v_plane"]).astype(np.float64)
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
        q = operands["qkv"][row, : q_heads * head_dim].reshape(q_heads, head_dim)
        for head in range(q_heads):
            kv = head * kv_heads // q_heads
            scores = k[:, kv] @ q[head] * case.floats["scale"]
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ v[:, kv] / weights.sum()
    return out


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("window", [0, 1, 21, 50])
@pytest.mark.parametrize(
    ("q_heads", "kv_heads", "head_dim", "page_tokens"),
    [(9, 3, 64, 32), (4, 4, 38, 20), (8, 1, 96, 16), (28, 1, 32, 48)],
)
def test_attention(
    q_heads: int, kv_heads: int, head_dim: int, page_tokens: int, window: int, instruction_set: str
) -> None:
    case = layer_cases.attention(
        np.random.default_rng(1), rows=9, capacity=9, q_heads=q_heads, kv_heads=kv_heads,
        head_dim=head_dim, page_tokens=page_tokens, window=window,
    )  # fmt: skip
    got = run(case, instruction_set)["out"].view(np.float32).reshape(9, q_heads, head_dim)
    np.testing.assert_allclose(got, expected_attention(case), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("format_", [BF16_FORMAT, Q8_FORMAT, Q16_FORMAT, Q8_PAIRS_FORMAT])
def test_attention_output_formats(format_: int, instruction_set: str) -> None:
    make = {"rows": 5, "capacity": 5, "q_heads": 6, "kv_heads": 2, "head_dim": 64}
    plain = layer_cases.attention(np.random.default_rng(2), **make)
    formatted = layer_cases.attention(np.random.default_rng(2), **make, format_=format_)
    expected = run(plain, instruction_set)["out"].view(np.float32)
    got = decode(run(formatted, instruction_set)["out"], format_, 384)
    step = {BF16_FORMAT: 1 / 256, Q16_FORMAT: 1 / 65024}.get(format_, 1 / 253)
    allowed = step * np.abs(expected).max(axis=1, keepdims=True)
    assert np.all(np.abs(got - expected) <= allowed)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_rows_without_a_place_are_zero(instruction_set: str) -> None:
    case = layer_cases.attention(
        np.random.default_rng(3), rows=6, capacity=6, q_heads=2, kv_heads=2, head_dim=32
    )
    case.operands["positions"][:] = [-1, 0, 127, 128, 2**31 - 1, 5]
    case.operands["slot"][:] = [0, -1, 1, 1, 2, 3]
    got = run(case, instruction_set)["out"].view(np.float32)
    assert np.any(got[2] != 0)
    assert not got[[0, 1, 3, 4, 5]].any()


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_pages_out_of_range_read_as_zero(instruction_set: str) -> None:
    case = layer_cases.attention(
        np.random.default_rng(4), rows=6, capacity=6, q_heads=4, kv_heads=2, head_dim=32
    )
    case.operands["positions"][:] = [100, 101, 70, 31, 127, 33]
    case.operands["page_table"][:, 1] = [-1, len(case.operands["k_plane"]), 2**31 - 1]
    got = run(case, instruction_set)["out"].view(np.float32).reshape(6, 4, 32)
    np.testing.assert_allclose(got, expected_attention(case), rtol=2e-5, atol=2e-5)


# Head dimensions and pages that no vector divides, tiles of several vectors of queries, and a tile
# that ends within one.
PROMPTS = [(6, 2, 64, 32), (3, 1, 38, 20), (4, 4, 80, 24), (16, 1, 48, 16)]


def prompt(rows: int, last: int, **extents: int) -> Case:
    """Rows of one slot at consecutive positions, which share tiles."""
    case = layer_cases.attention(np.random.default_rng(5), rows=rows, capacity=rows, **extents)
    case.operands["positions"][:] = np.arange(last + 1 - rows, last + 1)
    case.operands["slot"][:] = 1
    return case


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
) -> None:
    case = prompt(
        rows, 4 * page_tokens - 2, q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim,
        page_tokens=page_tokens, window=window,
    )  # fmt: skip
    if missing:
        case.operands["page_table"][1, 2] = -1
    out = run(case, instruction_set)["out"]
    got = out.view(np.float32).reshape(rows, q_heads, head_dim)
    np.testing.assert_allclose(got, expected_attention(case), rtol=2e-5, atol=2e-5)
    # In descending order no two rows share a tile.
    apart = case.with_operands(
        **{name: case.operands[name][::-1] for name in ("qkv", "positions", "slot")}
    )
    assert run(apart, instruction_set)["out"][::-1].tobytes() == out.tobytes()


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_rows_of_a_slot_may_leave_positions_out(instruction_set: str) -> None:
    case = prompt(30, 100, q_heads=4, kv_heads=2, head_dim=32)
    case.operands["positions"][:] = np.cumsum(np.arange(30) % 3 % 2 + 1) + 7
    got = run(case, instruction_set)["out"].view(np.float32).reshape(30, 4, 32)
    np.testing.assert_allclose(got, expected_attention(case), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [4, 30])
def test_what_lies_past_a_position_does_not_matter(rows: int, instruction_set: str) -> None:
    # Pages are reused: past a row's position lie another request's tokens, or anything at all.
    case = prompt(rows, 40, q_heads=4, kv_heads=2, head_dim=32)
    clean = run(case, instruction_set)["out"]
    second, *later = case.operands["page_table"][1][1:]
    for plane in ("k_plane", "v_plane"):
        case.operands[plane][later] = 0x7FC0
    case.operands["k_plane"][second, :, :, 9:] = 0x7FC0
    case.operands["v_plane"][second, :, 9:] = 0x7FC0
    np.testing.assert_array_equal(run(case, instruction_set)["out"], clean)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [4, 30])
def test_a_later_rows_infinity_stays_its_own(rows: int, instruction_set: str) -> None:
    case = prompt(rows, 40, q_heads=4, kv_heads=2, head_dim=32)
    case.operands["v_plane"][case.operands["page_table"][1, 1], :, 8] = 0x7C00
    got = run(case, instruction_set)["out"].view(np.float32)
    assert np.isfinite(got[:-1]).all()
    assert np.isinf(got[-1]).all()


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [4, 30])
def test_what_left_a_window_does_not_matter(rows: int, instruction_set: str) -> None:
    case = prompt(rows, 40, q_heads=4, kv_heads=2, head_dim=32, window=6)
    first, second, *_ = case.operands["page_table"][1]
    # The last row's window begins at position 35.
    case.operands["v_plane"][first] = 0x7C00
    case.operands["v_plane"][second, :, :3] = 0x7C00
    got = run(case, instruction_set)["out"].view(np.float32)
    assert np.isfinite(got[-1]).all()
    assert np.isinf(got[:-1]).all()


def expected_rope(case: Case) -> F64:
    """Rows after norm and rotation, `[capacity, heads, D]`; values untouched."""
    integers, operands = case.integers, case.operands
    q_heads, kv_heads, head_dim = (integers[name] for name in ("q_heads", "kv_heads", "head_dim"))
    rows = operands["qkv"].astype(np.float64).reshape(-1, q_heads + 2 * kv_heads, head_dim)
    rows = rows.copy()
    for name, heads in (("q_norm", slice(0, q_heads)), ("k_norm", slice(q_heads, -kv_heads))):
        if name in operands:
            x = rows[:, heads]
            mean = (x**2).mean(axis=2, keepdims=True)
            rows[:, heads] = x / np.sqrt(mean + case.floats["epsilon"]) * operands[name]
    angle = operands["positions"].astype(np.float32)[:, None] * operands["inverse_frequency"]
    c = np.cos(angle.astype(np.float64))[:, None] * case.floats["attention_factor"]
    s = np.sin(angle.astype(np.float64))[:, None] * case.floats["attention_factor"]
    turning = rows[:, :-kv_heads]
    x, y = turning[..., : head_dim // 2].copy(), turning[..., head_dim // 2 :].copy()
    turning[..., : head_dim // 2] = x * c - y * s
    turning[..., head_dim // 2 :] = y * c + x * s
    return rows


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize(("head_dim", "page_tokens"), [(64, 32), (38, 20), (128, 16)])
def test_rope_and_cache(head_dim: int, page_tokens: int, norms: bool, instruction_set: str) -> None:
    case = layer_cases.rope_and_cache(
        np.random.default_rng(7), rows=7, capacity=8, q_heads=6, kv_heads=2,
        head_dim=head_dim, page_tokens=page_tokens, norms=norms,
    )  # fmt: skip
    case.operands["positions"][2] = -1
    operands = case.operands
    got = run(case, instruction_set)
    rows = got["qkv"].reshape(8, 10, head_dim)
    expected = expected_rope(case)
    live = [0, 1, 3, 4, 5, 6]
    np.testing.assert_allclose(rows[live], expected[live], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got["qkv"][[2, 7]], operands["qkv"][[2, 7]])

    k_plane, v_plane = operands["k_plane"].copy(), operands["v_plane"].copy()
    for row in live:
        position = operands["positions"][row]
        page = operands["page_table"][operands["slot"][row], position // page_tokens]
        k_plane[page, :, :, position % page_tokens] = to_f16(rows[row, 6:8])
        v_plane[page, :, position % page_tokens] = to_f16(rows[row, 8:])
    np.testing.assert_array_equal(got["k_plane"], k_plane)
    np.testing.assert_array_equal(got["v_plane"], v_plane)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("head_dim", "page_tokens"), [(64, 32), (38, 20), (80, 8)])
def test_a_prompts_keys_and_values_are_stored(
    head_dim: int, page_tokens: int, threads: int, instruction_set: str
) -> None:
    # Neighbouring tokens of a page are stored together; an inert row, a page's end, a page without
    # a place and the next position of another slot come between.
    rows = 3 * page_tokens
    case = layer_cases.rope_and_cache(
        np.random.default_rng(10), rows=rows, capacity=rows, q_heads=2, kv_heads=2,
        head_dim=head_dim, page_tokens=page_tokens,
    )  # fmt: skip
    operands = case.operands
    operands["positions"][:] = np.arange(rows) + page_tokens - 3
    operands["positions"][page_tokens // 2] = -1
    operands["slot"][:] = 1
    operands["slot"][page_tokens // 2 + 3 :] = 2
    operands["page_table"][2, 2] = -1
    got = run(case, instruction_set, threads=threads)
    heads = got["qkv"].reshape(rows, 6, head_dim)
    k_plane, v_plane = operands["k_plane"].copy(), operands["v_plane"].copy()
    for row, position in enumerate(operands["positions"]):
        page = operands["page_table"][operands["slot"][row], position // page_tokens]
        if position >= 0 and page >= 0:
            k_plane[page, :, :, position % page_tokens] = to_f16(heads[row, 2:4])
            v_plane[page, :, position % page_tokens] = to_f16(heads[row, 4:])
    np.testing.assert_array_equal(got["k_plane"], k_plane)
    np.testing.assert_array_equal(got["v_plane"], v_plane)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_rows_without_a_place_write_no_cache(instruction_set: str) -> None:
    case = layer_cases.rope_and_cache(
        np.random.default_rng(8), rows=6, capacity=6, q_heads=2, kv_heads=1, head_dim=32
    )
    case.operands["positions"][:] = [-1, 0, 128, 2**31 - 1, 33, 5]
    case.operands["slot"][:] = [0, -1, 1, 2, 1, 3]
    case.operands["page_table"][1, 1] = len(case.operands["k_plane"])
    got = run(case, instruction_set)
    np.testing.assert_array_equal(got["k_plane"], case.operands["k_plane"])
    np.testing.assert_array_equal(got["v_plane"], case.operands["v_plane"])


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_far_positions_turn_exactly(instruction_set: str) -> None:
    case = layer_cases.rope_and_cache(
        np.random.default_rng(9), rows=4, capacity=4, q_heads=1, kv_heads=1, head_dim=32
    )
    case.operands["positions"][:] = [8191, 131071, 1_000_003, 16_777_215]
    got = run(case, instruction_set)["qkv"].reshape(4, 3, 32)
    np.testing.assert_allclose(got, expected_rope(case), rtol=2e-6, atol=2e-6)
