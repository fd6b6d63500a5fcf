"""What devices without the native library hold launches against: the sizes that it knows, too."""

from __future__ import annotations

import re

import numpy as np
import pytest

from helios.kernels.catalogue import BY_NAME, CATALOGUE, CUDA_ALONE, MEASURING
from helios.kernels.operand_extents import OPERAND_EXTENTS
from helios.runtime.launch_extents import operand_nbytes
from helios.runtime.manifest import Launch
from tests.native.cases import EVERY_KERNEL
from tests.native.cuda_cases import attention_f16, rope_and_cache_f16, weigh, weighed
from tests.native.launches import Case
from tests.native.layer_cases import linear, linear_silu_mul
from tests.native.packings import BF16_FORMAT, Packing
from tests.native.test_guards import ONE_ROW, SYMBOLIC


def test_every_operand_of_the_catalogue_has_an_extent() -> None:
    for kernel in CATALOGUE:
        names = {operand.name for operand in kernel.operands}
        assert OPERAND_EXTENTS[kernel.name].keys() >= names, kernel.name


def _cuda_cases() -> dict[str, Case]:
    rng = np.random.default_rng(3)
    heads = {"q_heads": 4, "kv_heads": 2, "head_dim": 16}
    rows = {"rows": 3, "capacity": 5, "width": 96}
    weighing = weigh(rng, block=16, **rows)
    product = linear(rng, Packing.ROWS_BF16, BF16_FORMAT, outputs=64, bias=True, **rows)[0]
    gated = linear_silu_mul(rng, Packing.ROWS_BF16, BF16_FORMAT, BF16_FORMAT, outputs=64, **rows)[0]
    return {
        "weigh": weighing,
        "linear_weighed": weighed(product, weighing),
        "linear_silu_mul_weighed": weighed(gated, weighing),
        "rope_and_cache_f16": rope_and_cache_f16(rng, rows=3, capacity=5, norms=True, **heads),
        "attention_f16 of rows": attention_f16(rng, contexts=(7, 70), **heads),
        "attention_f16 of lanes": attention_f16(
            rng, contexts=(7, 70), lengths=(2, 3), capacity=9, lane_capacity=4, **heads
        ),
    }


def _launch(case: Case) -> Launch:
    kernel = BY_NAME[case.kernel]
    integers = tuple(case.integers[name] for name in kernel.integers)
    return Launch(kernel, (None,) * len(kernel.operands), integers, ())


@pytest.mark.parametrize("name", [*EVERY_KERNEL, *_cuda_cases()])
def test_extents_are_those_of_the_native_library(name: str) -> None:
    """Its own test refuses what is a byte shorter than these arrays."""
    make = EVERY_KERNEL.get(name)
    case = _cuda_cases()[name] if make is None else make(np.random.default_rng(10))
    needed = operand_nbytes(_launch(case))
    symbolic = SYMBOLIC if case.kernel == "scatter_i32" else SYMBOLIC - {"target"}
    for spec, nbytes in zip(BY_NAME[case.kernel].operands, needed, strict=True):
        array = case.operands.get(spec.name)
        if array is None:
            assert spec.optional, spec.name
        elif spec.name in symbolic:
            assert nbytes == 0, spec.name
        else:
            rows = len(array) if spec.name in ONE_ROW else 1
            assert nbytes == array.nbytes // rows, spec.name


def test_every_kernel_has_been_held_against_something() -> None:
    cases = [make(np.random.default_rng(1)) for make in EVERY_KERNEL.values()]
    assert {case.kernel for case in cases} | CUDA_ALONE | MEASURING == BY_NAME.keys()


@pytest.mark.parametrize(
    ("kernel", "changed", "said"),
    [
        ("rms_norm", {"capacity": 0}, "attribute 'capacity' is 0"),
        ("rms_norm", {"width": -8}, "attribute 'width' is -8"),
        ("rms_norm", {"width": 1 << 31}, "attribute 'width' is 2147483648"),
        ("rms_norm", {"format": 9}, "9 is not a valid ActivationFormat"),
        ("rms_norm", {"format": 2, "width": 40}, "rows of 40 aren't kept as Q8"),
        ("linear", {"packing": 1}, "attribute 'packing' is 1"),
        ("linear", {"packing": 10, "width": 12}, "rows of 12 aren't kept as ROWS_BF16"),
        ("sample", {"stride": 16}, "attribute 'stride' is 16, less than vocab"),
    ],
)
def test_attributes_that_no_sizes_follow_from_are_refused(
    kernel: str, changed: dict[str, int], said: str
) -> None:
    spec = BY_NAME[kernel]
    valid = {"capacity": 4, "width": 64, "outputs": 32, "packing": 2, "vocab": 17, "stride": 32}
    attributes = valid | {"format": 0, "accumulate": 0} | changed
    integers = tuple(attributes[name] for name in spec.integers)
    launch = Launch(spec, (None,) * len(spec.operands), integers, ())
    with pytest.raises(ValueError, match=re.escape(said)):
        operand_nbytes(launch)
