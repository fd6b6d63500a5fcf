"""Targets as options name them, and what is recorded for one where nothing else is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios.errors import ContractError
from ignition.capture.target import CPU, TARGETS, named
from ignition.preparation.cuda_modules import refuse_settings
from ignition.preparation.options import Options
from tests.ignition.test_cli import run

CUDA = TARGETS["cuda:sm_90"]
CONTEXT = 32_768


def test_targets_have_their_names() -> None:
    assert [target.name for target in TARGETS.values()] == ["cpu", "cuda:sm_90"]
    assert named("cuda:sm_90") is CUDA
    assert (CPU.page_tokens, CUDA.page_tokens) == (32, 64)
    assert [target.is_cuda for target in (CPU, CUDA)] == [False, True]
    with pytest.raises(ContractError, match=r"--target: .*'cuda:sm_12'.*cpu, cuda:sm_90"):
        named("cuda:sm_12")


def test_defaults_follow_the_target() -> None:
    cpu = Options("tests", "tiny").extents(CONTEXT)
    gpu = Options("tests", "tiny", target=CUDA).extents(CONTEXT)
    assert (cpu.max_active, cpu.prefill, cpu.mixed) == (32, (32, 128, 512), (512,))
    assert (cpu.scored_prefill, cpu.page_tokens) == ((128,), 32)
    assert (gpu.max_active, gpu.prefill) == (128, (128, 512, 2048, 8192))
    assert (gpu.mixed, gpu.scored_prefill, gpu.page_tokens) == ((512, 2048), (512,), 64)
    assert gpu.decode == (1, 2, 4, 8, 16, 32, 64, 128)
    assert gpu.pages_per_request == CONTEXT // 64


@pytest.mark.parametrize(
    ("max_active", "prefill", "mixed"),
    [
        (128, (128, 512), (512,)),
        (300, (128, 512, 2048), (600, 2048)),
        (4, (64,), (64,)),
        (64, (16,), (128,)),
        (1, (512,), ()),
    ],
)
def test_mixed_programs_have_room_for_every_request(
    max_active: int, prefill: tuple[int, ...], mixed: tuple[int, ...]
) -> None:
    options = Options("tests", "tiny", target=CUDA, max_active=max_active, prefill=prefill)
    assert options.extents(CONTEXT).mixed == mixed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--target", "cpu", "--target", "cuda:sm_90"), "one size of pages"),
        (("--target", "cuda:sm_90", "--storage", "int4"), "no int4"),
        (("--target", "cuda:sm_90", "--tuning"), "nothing to measure"),
        (("--weightless",), "--weightless"),
    ],
)
def test_what_no_core_can_be_is_refused_before_a_checkpoint_is_read(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    key = tmp_path / "publisher.key"
    assert run("keygen", key) == 0
    capsys.readouterr()
    absent, out = tmp_path / "absent", tmp_path / "core"
    assert run("prepare", absent, out, "--namespace", "tests", "--key", key, *arguments) == 2
    assert said in capsys.readouterr().err


def test_a_draft_needs_a_cuda_target(
    checkpoint_folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint_folder("llama")
    assert run("prepare", folder, tmp_path / "draft", "--namespace", "t", "--weightless") == 2
    assert "Choose a cuda target" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["TRITON_INTERPRET", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS"])
def test_settings_that_would_make_other_modules_are_refused(name: str) -> None:
    with pytest.raises(ContractError, match=rf"--target: {name} is in the environment.*Unset it"):
        refuse_settings({"PATH": "/bin", name: "1"})
    refuse_settings({"PATH": "/bin", name: "0", "TRITON_CACHE_DIR": "/tmp", "HOME": ""})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_active": 65_537}, "--max-active: 65537 is too many. Give 65536 or less"),
        ({"prefill": (1 << 31,)}, "--prefill: no program takes 2147483648. Give 2147483647"),
        ({"mixed": (1 << 40,)}, "--mixed: no program takes"),
        ({"scored_prefill": (1 << 40,)}, "--scored-prefill: no program takes"),
    ],
)
def test_capacities_that_no_program_has_are_refused_by_option(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ContractError) as refused:
        Options("tests", "tiny", target=CUDA, **options).check()
    assert str(refused.value).startswith(said)
