"""Bundles and what runs them, over the stand-in driver: no kernel runs, numpy plays them.

What a GPU computes is in `test_on_a_gpu`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.every_trial import EVERY_TRIAL
from tests.standin_driver.building import ROOT, needs_standin, standin_environment

TRIALS = ["norm tiny", "admission 5", "begin decode 1x64 #0", "sample 600"]


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("triton", reason="cuda-prepare isn't installed: no bundle was made")
    needs_standin()
    folder = tmp_path_factory.mktemp("bundle")
    command = [sys.executable, "-m", "tests.gpu.bundle_cases", str(folder), "--only", *TRIALS]
    made = subprocess.run(
        command, env=standin_environment(), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return folder


def play(
    bundle: Path, folder: Path, *options: str, module: str = "played_cases", **settings: str
) -> tuple[int, dict[str, list[str]], str]:
    """Status, what is wrong with each trial, and what was printed."""
    command = [sys.executable, "-m", f"tests.gpu.{module}", str(bundle), "--out", str(folder)]
    done = subprocess.run(
        [*command, "--processes", "1", "--only", *TRIALS, *options],
        env=standin_environment(**settings),
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    report: dict[str, Any] = json.loads((folder / "results.json").read_text())
    wrong = {one["trial"]: one["wrong"] for one in report["trials"]}
    return done.returncode, wrong, done.stdout + done.stderr


def chosen() -> set[str]:
    return {name for name in EVERY_TRIAL if name.startswith(tuple(TRIALS))}


def test_programs_are_loaded_and_run_without_a_gpu(bundle, tmp_path):
    status, wrong, said = play(bundle, tmp_path, "--dry", module="run_cases")
    assert status == 0, said
    assert wrong.keys() == chosen()


def test_what_the_reference_leaves_is_right(bundle, tmp_path):
    status, wrong, said = play(bundle, tmp_path)
    assert status == 0, said
    assert wrong.keys() == chosen()
    assert not any(wrong.values())


def test_nothing_at_all_is_wrong_everywhere(bundle, tmp_path):
    # The stand-in runs no kernel: outputs keep their poison.
    status, wrong, _ = play(bundle, tmp_path, module="run_cases")
    assert status == 1
    assert any("elements differ" in said for said in wrong["norm tiny"])
    assert any("elements differ" in said for said in wrong["sample 600"])


@pytest.mark.parametrize(
    ("fault", "run", "complaint"),
    [
        ("value", "admission 5 #0: whole", "state: 1 of 640 elements differ"),
        ("value", "norm tiny: whole", "rms_norm.out: 1 of 4480 elements differ"),
        ("value", "norm tiny: 1 rows of 1, first 69", "out of 1 rows of 1 has other bits in"),
        ("value", "begin decode 1x64 #0: fused", "has other bits in 'fused' than in 'whole'"),
        ("once", "norm tiny: whole", "differs when other things lie around the arrays"),
        ("margin", "admission 5 #0: whole", "1 bytes changed that nothing may write"),
        ("operand", "sample 600: whole", "1 bytes changed that nothing may write"),
        ("counter", "sample 600: whole", "1 counters aren't zero, the first is 0"),
        ("exit", "sample 600: whole", "ended its process"),
    ],
)
def test_faults_are_found(bundle, tmp_path, fault, run, complaint):
    status, wrong, said = play(bundle, tmp_path, PLAYED_FAULT=f"{fault}:{run}")
    trial = run.partition(":")[0]
    assert status == 1
    assert wrong.keys() == chosen()
    assert any(complaint in one for one in wrong[trial]), wrong[trial]
    assert f"FAILED {trial}" in said
    assert [name for name, found in wrong.items() if found] == [trial]


def test_a_lost_context_ends_one_trial_alone(bundle, tmp_path):
    # Eight rounds of calibration and two runs, in every process anew.
    status, wrong, said = play(bundle, tmp_path, STANDIN_FAIL="run:700:11")
    assert status == 1
    assert wrong.keys() == chosen()
    failed = [name for name, found in wrong.items() if found]
    assert all("the GPU failed" in wrong[name][0] for name in failed)
    assert 0 < len(failed) < len(wrong), said


def test_a_bundle_of_other_trials_is_refused(bundle, tmp_path):
    manifest = bundle / "manifest.pb"
    content = manifest.read_bytes()
    try:
        manifest.write_bytes(content.replace(b"admission 5 #0", b"admission 5 #1", 1))
        status, wrong, said = play(bundle, tmp_path)
    finally:
        manifest.write_bytes(content)
    assert status == 1, said
    assert all(wrong.values())
