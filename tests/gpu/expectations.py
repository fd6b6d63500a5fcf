"""What numpy says of launches one after the other, and whether a GPU's operands are that.

Integers, copies and everything that is moved or counted must have numpy's bits; products, norms,
rotations, attention and logarithms may differ by the rounding of what they are made of. Whatever
numpy leaves as it was must have kept its bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from helios.kernels.catalogue import BY_NAME
from helios.kernels.operand_types import FORMAT, OPERAND_TYPES, OUT_FORMAT, PACKING
from helios.runtime.manifest import DType
from helios.runtime.reference.kernels import KERNELS
from helios.runtime.reference.unpack import PackedMatrix
from tests.gpu.trials import Run
from tests.native.cuda_cases import values
from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT

_PLANES: Final = ("k_plane", "v_plane")
_LOGPROBS: Final = ("logprobs", "top_logprobs", "out")
_SAMPLING: Final = ("sample", "sample_processed", "score", "score_ranked")


@dataclass(frozen=True)
class Tolerance:
    """An error of up to `relative` of the value and `spread` of the values' root mean square."""

    relative: float
    spread: float


# Errors that were measured against float64 are in docs/cuda.md; these are of single elements, of
# which there may be millions, and so a few times as large.
_F32: Final = Tolerance(1e-3, 3e-4)
_F16: Final = Tolerance(2e-3, 1e-3)
_BF16: Final = Tolerance(1e-2, 2e-3)
_ATTENTION: Final = Tolerance(2e-2, 8e-3)
_TOLERANT: Final = {
    "linear": _F32,
    "linear_silu_mul": _F32,
    "linear_weighed": _F32,
    "linear_silu_mul_weighed": _F32,
    "rms_norm": _F32,
    "weigh": _F32,
    "rope_and_cache_f16": _F16,
    "attention_f16": _ATTENTION,
}


def expected(cases: Sequence[Case]) -> dict[int, Array]:
    """The values (`cuda_cases.values`) of every array that the launches write, by its id."""
    memory: dict[int, Array] = {}
    written: dict[int, Array] = {}
    for case in cases:
        given: list[Array | PackedMatrix | None] = []
        for operand in BY_NAME[case.kernel].operands:
            array = case.operands.get(operand.name)
            if array is None:
                given.append(None)
                continue
            if OPERAND_TYPES[case.kernel][operand.name] == PACKING:
                raw = array.reshape(-1).view(np.uint8)
                given.append(PackedMatrix(operand.name, raw, DType.BF16))
                continue
            if id(array) not in memory:
                memory[id(array)] = values(case, operand.name, array).copy()
            held = memory[id(array)]
            if "w" in operand.access:
                written[id(array)] = held
            elif operand.name in _PLANES:
                held = np.nan_to_num(held)  # the reference multiplies by what no row sees
            given.append(held)
        with np.errstate(all="ignore"):
            KERNELS[case.kernel](*given, **case.integers, **case.floats)
    return written


def differences(run: Run, after: Mapping[int, Array]) -> list[str]:
    """What isn't as numpy says. `after` holds every array as the GPU left it, by the id of the one
    that it was made from."""
    wanted = expected(run.cases)
    for number in run.unread_ids:
        wanted.pop(number, None)
    found = []
    for case in run.cases:
        for operand in BY_NAME[case.kernel].operands:
            array = case.operands.get(operand.name)
            if array is None or id(array) not in wanted:
                continue
            said = _difference(case, operand.name, array, after[id(array)], wanted[id(array)])
            if said:
                found.append(f"{case.kernel}.{operand.name}: {said}")
    return found


def _difference(case: Case, name: str, before: Array, after: Array, exact: Array) -> str:
    kind = OPERAND_TYPES[case.kernel][name]
    floating = kind in (FORMAT, OUT_FORMAT, "f16", "f32")
    tolerance = _TOLERANT.get(case.kernel) if floating else None
    if tolerance is None and floating and case.kernel in _SAMPLING and name in _LOGPROBS:
        return _logprob_difference(after.reshape(-1), exact)
    old, new = values(case, name, before), values(case, name, after)
    if tolerance is None:
        same = _elements(new, len(exact)) == _elements(exact, len(exact))
        return _described(~same.all(axis=1), new, exact)
    form = case.integers.get(kind)
    if form == BF16_FORMAT and case.kernel != "attention_f16":
        tolerance = _BF16
    left = (old == exact) | (np.isnan(old) & np.isnan(exact))
    kept = (_elements(before, len(exact)) == _elements(after, len(exact))).all(axis=1)
    with np.errstate(all="ignore"):
        spread = 0.0 if left.all() else float(np.sqrt(np.mean(np.square(exact[~left], dtype="f8"))))
        error = tolerance.relative * np.abs(exact) + tolerance.spread * spread
        close = np.abs(new - exact) <= error
    return _described(~np.where(left, kept, close), new, exact)


def _logprob_difference(new: Array, exact: Array) -> str:
    close = np.isclose(new, exact, rtol=1e-5, atol=1e-5, equal_nan=True)
    return _described(~close, new, exact)


def _elements(array: Array, count: int) -> Array:
    return np.ascontiguousarray(array).view(np.uint8).reshape(count, -1)


def _described(wrong: Array, new: Array, exact: Array) -> str:
    """How many elements, and the first of them."""
    at = np.flatnonzero(wrong)
    if not at.size:
        return ""
    first = ", ".join(f"[{i}] {new[i]} instead of {exact[i]}" for i in at[:4])
    return f"{at.size} of {len(exact)} elements differ: {first}"
