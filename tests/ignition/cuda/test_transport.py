"""The transport kernels: what they bring, interpreted, and that they are what the device takes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from helios.runtime.devices.cuda import loading, pinned, transfers
from tests.ignition.cuda.interpreted import ROOT, WITHOUT_TRITON, resources

pytest.importorskip("triton", reason=WITHOUT_TRITON)

from ignition.kernels.cuda import transport
from ignition.kernels.cuda.compile import compile


def test_rounds_are_brought_there_and_back_before_their_sequence_is_released() -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.ignition.cuda.transport_rounds"],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_device_and_the_kernels_agree() -> None:
    assert transfers.RANGE_NBYTES == transport.RANGE_NBYTES
    assert pinned.TIMED_SEQUENCES == transport.TIMED_SEQUENCES
    for request, sizes in (
        (transport.STAGE, loading.STAGE_SIZES),
        (transport.RECORD, loading.RECORD_SIZES),
    ):
        compiled = compile(request)
        visible = compiled.parameters[: len(sizes)]
        assert [parameter.name for parameter in visible] == list(request.arguments)
        assert tuple(parameter.nbytes for parameter in compiled.parameters) == (*sizes, 8, 8)
        assert resources(compiled)["STACK"] == 0
