"""Every kernel of the cuda target on a real GPU. Skips, and says so, where there is none.

HELIOS_GPU_BUNDLE names a bundle (`tests.gpu.bundle_cases`); without it one is compiled here, which
takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helios.errors import ExecutionError
from helios.runtime.devices.cuda.driver import bindings

ROOT = Path(__file__).parents[2]


def needs_gpu() -> None:
    """Skips where there is no driver or no GPU."""
    try:
        driver = bindings()
        status, count = driver.cuDeviceGetCount()
    except ExecutionError as error:
        pytest.skip(f"NO KERNEL OF THE CUDA TARGET RAN ON A GPU: {error}")
    if status != 0 or not count:
        pytest.skip("NO KERNEL OF THE CUDA TARGET RAN ON A GPU: the driver sees none")


@pytest.mark.gpu
@pytest.mark.timeout(3600)
def test_every_kernel_is_the_reference_s_and_no_row_depends_on_its_company(tmp_path):
    needs_gpu()
    bundle = os.environ.get("HELIOS_GPU_BUNDLE")
    if bundle is None:
        pytest.importorskip("triton", reason="NO KERNEL RAN ON A GPU: HELIOS_GPU_BUNDLE isn't set")
        bundle = str(tmp_path / "bundle")
        subprocess.run(
            [sys.executable, "-m", "tests.gpu.bundle_cases", bundle], cwd=ROOT, check=True
        )
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.run_cases", bundle, "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
