"""Projections in groups of warps: which launches become one, and what the compiler makes of it.

Triton's interpreter doesn't run its language; a GPU does, in `tests/gpu/grouped_trials.py`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import grouped_trials, model_trials
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, compiled, lowered, resources
from tests.native.launches import Case
from tests.native.packings import Packing

triton = pytest.importorskip("triton", reason=WITHOUT_TRITON)


def case_of(name: str, height: int, **integers: int) -> Case:
    product = grouped_trials.PRODUCTS[name]
    made = product(np.random.default_rng(0), *grouped_trials.SIZES[height])
    return made.with_integers(**integers)


def kernel_of(case: Case, architecture: str = "sm_90") -> str:
    (kernel,) = lowered(case, architecture=architecture)
    return kernel.request.function.__name__


@pytest.mark.parametrize("height", grouped_trials.SIZES)
@pytest.mark.parametrize("name", grouped_trials.PRODUCTS)
def test_trials_are_done_in_groups_with_tiles_of_their_height(name: str, height: int) -> None:
    (kernel,) = lowered(case_of(name, height))
    assert kernel.request.function.__name__ == "project_in_groups"
    assert kernel.request.constants["BM"] == height
    assert set(kernel.arguments) == set(kernel.request.arguments)
    assert kernel.grid == (132, 1, 1)


def test_other_gpus_codes_and_few_rows_have_other_kernels() -> None:
    case = case_of("f32", 128)
    assert kernel_of(case) == "project_in_groups"
    assert kernel_of(case, "sm_100") == "project_many"
    assert kernel_of(case.with_integers(capacity=255)) == "project_many"
    codes = case.with_integers(packing=int(Packing.ROWS_Q8), width=1536)
    assert kernel_of(codes) == "project_scaled"


def test_parts_are_left_to_the_kernel_that_adds_them() -> None:
    rng = np.random.default_rng(0)
    case = model_trials.linear(rng, 3072, 1024, bias=False, accumulate=True, rows=2048)
    assert kernel_of(case) == "project_many"


@pytest.mark.parametrize(
    ("name", "height"),
    [
        ("f32 bias", 128),
        ("added", 128),
        ("added bias", 128),
        ("gate_up", 128),
        ("gate_up f32", 128),
        ("f32", 64),
        ("added bias", 64),
        ("gate_up", 64),
    ],
)
def test_products_stay_in_registers_and_in_flight(name: str, height: int, tmp_path: Path) -> None:
    (kernel,) = compiled(case_of(name, height))
    assert resources(kernel)["STACK"] == 0
    # Two groups of four warps, and a third for the one that loads.
    assert kernel.threads == 384
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(kernel.cubin)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    listing = subprocess.run(
        [tool, "-sass", cubin], capture_output=True, text=True, check=True
    ).stdout
    # A compiler that can't keep products apart from what surrounds them waits for each of them.
    products = re.findall(r"HGMMA[^;]*;", listing)
    ends = [product for product in products if "gsb0" in product]
    assert len(products) == 2 * 2 * 4 * (height // 64)  # groups; the first block, the others; of 16
    assert len(ends) == 2 * 2
    assert listing.count("WARPGROUP.DEPBAR.LE gsb0, 0x1") == len(ends)
