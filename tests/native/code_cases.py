"""A product that shows the number of every 8-bit code, and random matrices of codes."""

from __future__ import annotations

import numpy as np

from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT, Packing, as_bytes
from tests.native.states import i32

_ONE = 0x3F80  # bf16


def every_code(packing: Packing) -> Case:
    """One input is 1 and the others 0: output n is half the number of code n. e4m3's NaN are left
    out."""
    codes = np.arange(256, dtype=np.uint8)
    if packing is Packing.ROWS_FP8:
        codes[codes & 0x7F == 0x7F] = 0
    weight = np.zeros((256, 16), np.uint8)
    weight[:, 5] = codes
    x = np.zeros((1, 16), np.uint16)
    x[0, 5] = _ONE
    operands: dict[str, Array] = {
        "rows": i32(1),
        "x": x.view(np.uint8),
        "weight": as_bytes(weight, np.full(256, 0.5, np.float32)),
        "out": np.full((1, 256), np.nan, np.float32),
    }
    integers = {"capacity": 1, "width": 16, "outputs": 256, "packing": int(packing)}
    return Case("linear", operands, integers | {"format": BF16_FORMAT, "accumulate": 0})


def with_codes(rng: np.random.Generator, case: Case, packing: Packing, outputs: int) -> Case:
    """The launch with random codes in place of its matrix of `outputs`; made faster than
    `packings.random_packed` makes them: some have 10^8."""
    width = case.integers["width"]
    codes = rng.integers(0, 256, (outputs, width), np.uint8)
    blocks = 1
    if packing is Packing.ROWS_Q8:
        blocks = -(-width // 128)
    else:
        codes[codes & 0x7F == 0x7F] = 0
    scales = rng.random((blocks, outputs), np.float32) / np.float32(128)
    padding = np.zeros(-(codes.nbytes + scales.nbytes) % width, np.uint8)
    integers = {**case.integers, "packing": int(packing)}
    operands = {**case.operands, "weight": as_bytes(codes, scales, padding)}
    return Case(case.kernel, operands, integers, case.floats)
