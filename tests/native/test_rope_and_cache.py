"""`rope_and_cache` and `rope_and_cache_bf16` against numpy, with pages out of order and out of
range. Cases are made for planes of f16; the other kernel's are those in bf16 pairs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native import layer_cases
from tests.native.harness import INSTRUCTION_SETS, Array, Case, run
from tests.native.packings import to_bf16, to_f16

F64 = NDArray[np.float64]

both_kernels = pytest.mark.parametrize("bf16", [False, True])


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


def rope(
    case: Case, bf16: bool, instruction_set: str, *, threads: int = 1
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What `rope_and_cache` or `rope_and_cache_bf16` writes, and the planes that it was given."""
    case = layer_cases.in_pairs(case) if bf16 else case
    planes = {name: case.operands[name].copy() for name in ("k_plane", "v_plane")}
    return run(case, instruction_set, threads=threads), planes


def store(
    planes: dict[str, Array], page: int, offset: int, keys: Array, values: Array, bf16: bool
) -> None:
    """Puts a token's keys and values, `[Hkv, D]`, in their places."""
    if bf16:
        pairs = to_bf16(keys).reshape(len(keys), -1, 2)
        planes["k_plane"][page, :, :, offset] = pairs
        planes["v_plane"][page, :, offset // 2, :, offset % 2] = to_bf16(values)
    else:
        planes["k_plane"][page, :, :, offset] = to_f16(keys)
        planes["v_plane"][page, :, offset] = to_f16(values)


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize(("head_dim", "page_tokens"), [(64, 32), (38, 20), (128, 16)])
def test_rope_and_cache(
    head_dim: int, page_tokens: int, norms: bool, instruction_set: str, bf16: bool
) -> None:
    case = layer_cases.rope_and_cache(
        np.random.default_rng(7), rows=7, capacity=8, q_heads=6, kv_heads=2,
        head_dim=head_dim, page_tokens=page_tokens, norms=norms,
    )  # fmt: skip
    case.operands["positions"][2] = -1
    operands = case.operands
    got, planes = rope(case, bf16, instruction_set)
    rows = got["qkv"].reshape(8, 10, head_dim)
    expected = expected_rope(case)
    live = [0, 1, 3, 4, 5, 6]
    np.testing.assert_allclose(rows[live], expected[live], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got["qkv"][[2, 7]], operands["qkv"][[2, 7]])

    for row in live:
        position = operands["positions"][row]
        page = operands["page_table"][operands["slot"][row], position // page_tokens]
        store(planes, page, position % page_tokens, rows[row, 6:8], rows[row, 8:], bf16)
    for name, plane in planes.items():
        np.testing.assert_array_equal(got[name], plane)


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("head_dim", "page_tokens"), [(64, 32), (38, 20), (80, 8)])
def test_a_prompts_keys_and_values_are_stored(
    head_dim: int, page_tokens: int, threads: int, instruction_set: str, bf16: bool
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
    got, planes = rope(case, bf16, instruction_set, threads=threads)
    heads = got["qkv"].reshape(rows, 6, head_dim)
    for row, position in enumerate(operands["positions"]):
        page = operands["page_table"][operands["slot"][row], position // page_tokens]
        if position >= 0 and page >= 0:
            store(planes, page, position % page_tokens, heads[row, 2:4], heads[row, 4:], bf16)
    for name, plane in planes.items():
        np.testing.assert_array_equal(got[name], plane)


@both_kernels
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_rows_without_a_place_write_no_cache(instruction_set: str, bf16: bool) -> None:
    case = layer_cases.rope_and_cache(
        np.random.default_rng(8), rows=6, capacity=6, q_heads=2, kv_heads=1, head_dim=32
    )
    case.operands["positions"][:] = [-1, 0, 128, 2**31 - 1, 33, 5]
    case.operands["slot"][:] = [0, -1, 1, 2, 1, 3]
    case.operands["page_table"][1, 1] = len(case.operands["k_plane"])
    got, planes = rope(case, bf16, instruction_set)
    for name, plane in planes.items():
        np.testing.assert_array_equal(got[name], plane)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_far_positions_turn_exactly(instruction_set: str) -> None:
    case = layer_cases.rope_and_cache(
        np.random.default_rng(9), rows=4, capacity=4, q_heads=1, kv_heads=1, head_dim=32
    )
    case.operands["positions"][:] = [8191, 131071, 1_000_003, 16_777_215]
    got = run(case, instruction_set)["qkv"].reshape(4, 3, 32)
    np.testing.assert_allclose(got, expected_rope(case), rtol=2e-6, atol=2e-6)
