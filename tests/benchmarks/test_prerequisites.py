"""Commands that need what a machine may lack say so in one line, with how it is had."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_without(
    tmp_path: Path, modules: Sequence[str], command: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Runs a script of this checkout where these modules can't be imported."""
    hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in modules)
    (tmp_path / "sitecustomize.py").write_text(f"import sys\n{hidden}")
    paths = [str(tmp_path), str(ROOT / "src"), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The only line of a command that can't do its work."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    "command",
    [
        ["gpu.py", "nowhere", "--accept", "x"],
        ["gpu_ranks.py", "nowhere", "--accept", "x"],
        ["gpu_replay.py", "run", "nowhere"],
        ["gpu_roofline.py", "nowhere"],
        ["gpu_host.py", "run", "nowhere"],
        ["critical_path.py", "nowhere", "--accept", "x"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_benchmark_without_a_gpu_says_what_is_missing(tmp_path: Path, command: list[str]) -> None:
    script, *arguments = command
    done = run_without(tmp_path, ["cuda"], [f"benchmarks/{script}", *arguments])
    line = said(done)
    assert line.startswith(f"{script} needs a GPU. cuda target: cuda-bindings can't be imported")
    assert line.endswith("pip install 'helios-serve[cuda]'")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("command", "hidden", "get"),
    [
        (["gpu_accumulation.py", "run", "x"], "torch", "pip install torch"),
        (["gpu_layer.py", "run", "x"], "torch", "pip install torch"),
        (["gpu_accumulation.py", "compile", "x"], "triton", "pip install -e '.[cuda-prepare]'"),
        (["gpu_layer.py", "compile", "x"], "triton", "pip install -e '.[cuda-prepare]'"),
        (["gpu_host.py", "compile", "x"], "triton", "pip install -e '.[cuda-prepare]'"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_benchmark_without_a_package_names_it(
    tmp_path: Path, command: list[str], hidden: str, get: str
) -> None:
    script, *arguments = command
    line = said(run_without(tmp_path, [hidden], [f"benchmarks/{script}", *arguments]))
    assert line == f"{script} needs the Python package {hidden}: {get}"


def test_the_critical_path_over_the_standin_needs_the_extra_of_tests(tmp_path: Path) -> None:
    hidden = ["cuda", "pytest"]
    line = said(run_without(tmp_path, hidden, ["benchmarks/critical_path.py"]))
    assert line == (
        "critical_path.py needs the Python packages cuda.bindings, pytest: pip install -e '.[test]'"
    )


def test_the_agent_without_a_server_or_its_sdk(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    ask = ["examples/agent_loop.py", "How many?", "--server", url]
    line = said(run_without(tmp_path, [], ask))
    assert line == (
        f"agent_loop.py: no server answers at {url}: start one with `make demo`, or name another"
        " with --server"
    )
    line = said(run_without(tmp_path, ["openai"], ask))
    assert line == "agent_loop.py needs OpenAI's SDK: pip install openai"
