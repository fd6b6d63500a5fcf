"""`linear`, `linear_silu_mul`, `embed` and `rms_norm` against numpy, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native import layer_cases
from tests.native.harness import INSTRUCTION_SETS, run
from tests.native.packings import (
    BF16_FORMAT,
    BLOCKS,
    F32_FORMAT,
    FORMATS,
    Q8_FORMAT,
    Q8_PAIRS_FORMAT,
    Q16_FORMAT,
    QUANTISED,
    QUANTISED_FORMATS,
    TILED,
    Packed,
    Packing,
    decode,
    encode,
    from_bf16,
    row_nbytes,
)
from tests.native.pairs import pair_product

F64 = NDArray[np.float64]
PRODUCTS = [
    (packing, format_) for packing in TILED for format_ in layer_cases.activation_formats(packing)
]


def assert_close(got: NDArray[np.float32], expected: F64, magnitude: F64) -> None:
    """Within f32 rounding of sums whose terms add up to `magnitude` in absolute value."""
    assert np.all(np.abs(got - expected) <= 2e-6 * magnitude + 1e-6)


def product(x: NDArray[np.float32], format_: int, matrix: Packed) -> F64:
    """Of activations in a format and a matrix, in f64."""
    outputs, width = matrix.weights.shape
    encoded = encode(x, format_)
    if format_ == Q8_PAIRS_FORMAT:
        return pair_product(encoded, matrix.data, outputs, width)
    values = decode(encoded, format_, width).astype(np.float64)
    expected: F64 = values @ matrix.weights.astype(np.float64).T
    return expected


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 13])
@pytest.mark.parametrize(("packing", "format_"), PRODUCTS)
def test_linear(packing: Packing, format_: int, rows: int, instruction_set: str) -> None:
    rng = np.random.default_rng(rows)
    case, matrix, x = layer_cases.linear(
        rng, packing, format_, rows=rows, capacity=rows + 1, width=192, outputs=150
    )
    got = run(case, instruction_set)["out"][:rows]
    values = decode(encode(x, format_), format_, 192)[:rows].astype(np.float64)
    weights = matrix.weights.astype(np.float64)
    # Quantised codes enter with their zero point, so that is what rounding is relative to.
    slack = 8 if packing in QUANTISED else 1
    magnitude = slack * (np.abs(values) @ np.abs(weights).T)
    assert_close(got, product(x, format_, matrix)[:rows], magnitude)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("packing", BLOCKS)
def test_extreme_codes_do_not_saturate(packing: Packing, instruction_set: str) -> None:
    # Largest weights and activations of either sign: 16-bit intermediate sums would overflow.
    rng = np.random.default_rng(0)
    case, matrix, _ = layer_cases.linear(
        rng, packing, Q8_FORMAT, rows=2, capacity=2, width=64, outputs=16
    )
    codes = {Packing.TILE16_Q8_0: 255, Packing.TILE16_Q6_K: 63}.get(packing, 255)
    q_nbytes = 2 * (256 if packing in (Packing.TILE16_Q4_0, Packing.TILE16_Q4_1) else 512)
    data = matrix.data.copy()
    data[:q_nbytes] = codes
    zero = {Packing.TILE16_Q8_0: 128, Packing.TILE16_Q4_0: 8, Packing.TILE16_Q6_K: 32}
    code = 15 if codes == 255 and packing is not Packing.TILE16_Q8_0 else codes
    if packing is Packing.TILE16_Q6_K:
        data[q_nbytes : q_nbytes + 64] = np.int8(-128).view(np.uint8)
        scale = -128.0
        d = data[q_nbytes + 64 :].view(np.float16)[:32].reshape(2, 16)
    else:
        scale = 1.0
        d = data[q_nbytes : q_nbytes + 64].view(np.float16).reshape(2, 16)
    weight = d.astype(np.float64) * scale * (code - zero.get(packing, 0))
    if packing is Packing.TILE16_Q4_1:
        weight += data[q_nbytes + 64 :].view(np.float16).reshape(2, 16)
    x = np.stack([np.ones(64), -np.ones(64)]).astype(np.float32)
    got = run(case.with_operands(weight=data, x=encode(x, Q8_FORMAT)), instruction_set)["out"]
    expected = 32 * weight.sum(axis=0)
    np.testing.assert_allclose(got[0], expected, rtol=1e-5)
    np.testing.assert_allclose(got[1], -expected, rtol=1e-5)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
def test_pairs_are_multiplied_as_the_page_says(rows: int, instruction_set: str) -> None:
    rng = np.random.default_rng(20 + rows)
    case, matrix, x = layer_cases.linear(
        rng, Packing.TILE16_Q4_PAIRS, Q8_PAIRS_FORMAT,
        rows=rows, capacity=rows, width=320, outputs=87,
    )  # fmt: skip
    # A block much smaller than its neighbour, and a pair of zeros.
    x[0, :32] *= 1e-3
    x[-1, 64:128] = 0
    encoded = encode(x, Q8_PAIRS_FORMAT)
    got = run(case.with_operands(x=encoded), instruction_set)["out"]
    expected = pair_product(encoded, matrix.data, 87, 320)
    magnitude = np.abs(x).astype(np.float64) @ np.abs(matrix.weights).T.astype(np.float64)
    assert np.all(np.abs(got - expected) <= 1e-6 * magnitude + 1e-9)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("code", [0, 15])
@pytest.mark.parametrize("sign", [-1, 1])
def test_extreme_pairs_do_not_overflow(code: int, sign: int, instruction_set: str) -> None:
    rng = np.random.default_rng(0)
    case, matrix, _ = layer_cases.linear(
        rng, Packing.TILE16_Q4_PAIRS, Q8_PAIRS_FORMAT, rows=2, capacity=2, width=64, outputs=16
    )
    data = matrix.data.copy()
    data[:512] = code | code << 4
    data[-4:] = 0
    scales = data[512:640].view(np.int16)
    scales[:32] = 28000
    scales[32:] = -32767 if code == 0 else 32767
    x = encode(sign * np.stack([np.ones(64), -np.ones(64)]).astype(np.float32), Q8_PAIRS_FORMAT)
    got = run(case.with_operands(weight=data, x=x), instruction_set)["out"]
    np.testing.assert_allclose(got, pair_product(x, data, 16, 64), rtol=1e-6)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_bias_and_accumulation_are_added_after_the_product(instruction_set: str) -> None:
    rng = np.random.default_rng(3)
    plain, _, _ = layer_cases.linear(
        rng, Packing.TILE16_BF16, BF16_FORMAT, rows=3, capacity=3, width=64, outputs=37
    )
    product = run(plain, instruction_set)["out"]
    bias = rng.standard_normal(37).astype(np.float32)
    biased = plain.with_operands(bias=bias)
    np.testing.assert_array_equal(run(biased, instruction_set)["out"], product + bias)
    both = biased.with_integers(accumulate=1)
    before = both.operands["out"]
    np.testing.assert_array_equal(run(both, instruction_set)["out"], before + (product + bias))
    added = plain.with_integers(accumulate=1)
    np.testing.assert_array_equal(run(added, instruction_set)["out"], before + product)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("out_format", FORMATS)
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize(("packing", "format_"), PRODUCTS)
def test_linear_silu_mul(
    packing: Packing, format_: int, rows: int, out_format: int, instruction_set: str
) -> None:
    rng = np.random.default_rng(4)
    width, outputs = 64, 128
    case, matrix, x = layer_cases.linear_silu_mul(
        rng, packing, format_, out_format,
        rows=rows, capacity=rows, width=width, outputs=outputs,
    )  # fmt: skip
    got = decode(run(case, instruction_set)["out"], out_format, outputs)
    products = product(x, format_, matrix).reshape(rows, -1, 2, 16)
    gate, up = products[:, :, 0].reshape(rows, -1), products[:, :, 1].reshape(rows, -1)
    with np.errstate(over="ignore"):
        expected = gate / (1 + np.exp(-gate)) * up
    step = {BF16_FORMAT: 1 / 200}.get(out_format, 1e-4)
    allowed = step * np.abs(expected) + 1e-4
    if out_format in QUANTISED_FORMATS:
        limit = 32512 if out_format == Q16_FORMAT else 127
        blocks = np.abs(expected).reshape(rows, -1, 32).max(axis=2) / limit
        allowed += 0.51 * np.repeat(blocks, 32, axis=1)
    assert np.all(np.abs(got - expected) <= allowed)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("packing", TILED)
def test_embed(packing: Packing, instruction_set: str) -> None:
    rng = np.random.default_rng(5)
    case, table = layer_cases.embed(rng, packing, rows=6, capacity=7, vocab=50, width=64)
    tokens = np.array([49, -1, 0, 50, 17, 2**31 - 1, 3], np.int32)
    got = run(case.with_operands(tokens=tokens), instruction_set)["out"]
    for row, token in enumerate(tokens[:6]):
        inside = 0 <= token < 50
        expected = table.weights[token] * np.float32(1.5) if inside else np.zeros(64, np.float32)
        np.testing.assert_allclose(got[row], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("format_", FORMATS)
def test_rms_norm(format_: int, instruction_set: str) -> None:
    rng = np.random.default_rng(6)
    width = 192 if format_ in QUANTISED_FORMATS else 93
    case = layer_cases.rms_norm(rng, format_, rows=4, capacity=5, width=width)
    x = case.operands["x"].astype(np.float64)
    norm = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * case.operands["weight"]
    got = decode(run(case, instruction_set)["out"], format_, width)[:4]
    expected = decode(encode(norm.astype(np.float32), format_), format_, width)[:4]
    # A value on a rounding boundary may fall to either side: one step of the format.
    step = {F32_FORMAT: 1e-6, BF16_FORMAT: 1 / 128, Q16_FORMAT: 1 / 16256}.get(format_, 1 / 60)
    np.testing.assert_allclose(got, expected, rtol=0, atol=step * np.abs(norm).max())
    assert np.mean(np.isclose(got, expected, rtol=1e-5, atol=1e-7)) > 0.9


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("format_", QUANTISED_FORMATS)
def test_quantised_rows_are_what_the_page_says(format_: int, instruction_set: str) -> None:
    # A unit weight and rows of unit mean square leave x (nearly) alone, so that the bytes of the
    # quantised row can be computed from the f32 row that the same instruction set writes.
    rng = np.random.default_rng(7)
    case = layer_cases.rms_norm(rng, F32_FORMAT, rows=3, capacity=3, width=128)
    case.operands["x"][1, 32:64] = 0
    case.operands["x"][2, :32] = 1e-40
    values = run(case, instruction_set)["out"].view(np.float32).reshape(3, 128)
    quantised = case.with_integers(format=format_)
    out = np.zeros((3, row_nbytes(format_, 128)), np.uint8)
    got = run(quantised.with_operands(out=out), instruction_set)["out"]
    np.testing.assert_array_equal(got, encode(values, format_))


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_bf16_rounds_to_nearest_even_and_keeps_nan(instruction_set: str) -> None:
    case = layer_cases.rms_norm(np.random.default_rng(8), F32_FORMAT, rows=1, capacity=1, width=16)
    weight = np.ones(16, np.float32)
    weight.view(np.uint32)[:5] = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0x7F800001]
    x = np.ones((1, 16), np.float32)
    launch = case.with_operands(
        x=x, weight=weight, out=np.zeros((1, row_nbytes(BF16_FORMAT, 16)), np.uint8)
    ).with_integers(format=BF16_FORMAT)
    exact = type(case)(launch.kernel, launch.operands, launch.integers, {"epsilon": 0.0})
    got = run(exact, instruction_set)["out"].view(np.uint16)[0]
    assert got[:4].tolist() == [0x3F80, 0x3F82, 0x3F81, 0x7F80]
    assert np.isnan(from_bf16(got)[4])
