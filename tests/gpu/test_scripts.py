"""The scripts that make bundles and check GPUs with them: what they refuse, and how they fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder as `gpu-bundle` writes one, with names of models and nothing in them."""
    folder = tmp_path / "bundle"
    for name in ("cores/tiny-llama", "cores/tiny-qwen3", "drafts/large"):
        (folder / name).mkdir(parents=True)
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "gpu-check", folder / "scripts")
    return folder


@pytest.fixture
def gpu_check(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The bundle's script, as a module."""
    loader = SourceFileLoader("gpu_check", str(bundle / "scripts" / "gpu-check"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    return module


def refused(*command: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False
    )
    assert done.returncode not in (0, -9), done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def test_models_that_a_bundle_hasn_t_are_refused(bundle: Path, tmp_path: Path) -> None:
    said = refused(
        bundle / "scripts" / "gpu-check", "fill", "--models", "large,typo",
        "--work", tmp_path / "work", "--out", tmp_path / "out",
    )  # fmt: skip
    assert "--models: 'typo' not in the bundle, which has large, tiny-llama, tiny-qwen3" in said
    assert not (tmp_path / "work").exists()


def test_the_sanitizer_without_a_tiny_model_has_failed(
    gpu_check: ModuleType, tmp_path: Path
) -> None:
    check = gpu_check.Check(tmp_path, ["large"], tmp_path / "out")
    gpu_check.sanitizer(check)
    (outcome,) = check.outcomes
    assert outcome.status != 0
    assert "needs one of the tiny models" in outcome.output


def test_a_step_that_takes_too_long_ends_with_all_that_it_started(
    gpu_check: ModuleType, tmp_path: Path
) -> None:
    check = gpu_check.Check(tmp_path, [], tmp_path / "out")
    check.run("step", "name", "sh", "-c", "(sleep 15; echo survived) & wait", timeout_s=0.5)
    (outcome,) = check.outcomes
    assert outcome.status == 124
    assert "survived" not in outcome.output
    assert "ended after" in outcome.output


def test_geometries_that_aren_t_known_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    said = refused(
        ROOT / "scripts" / "gpu-bundle", tmp_path / "made", "--geometries", "qwen3-0.6b,smollm"
    )
    assert "no 'smollm'; there are" in said
    assert "smollm2-135m" in said
    assert not (tmp_path / "made").exists()


def test_a_bundle_within_what_is_copied_is_refused() -> None:
    folder = ROOT / "tests" / "gpu" / "made" / "bundle"
    assert "lies in" in refused(ROOT / "scripts" / "gpu-bundle", folder)
    assert not folder.exists()
