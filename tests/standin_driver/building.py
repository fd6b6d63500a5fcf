"""Compiles the stand-in driver library once and runs children that load it as the driver."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SOURCES = sorted(Path(__file__).parent.glob("*.[ch]"))
_LIBRARY = "libcuda.so.1"
_FLAGS = (
    *("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"),
    *("-fvisibility=hidden", "-shared", "-fPIC", f"-Wl,-soname,{_LIBRARY}"),
)


def needs_standin() -> None:
    """Skips, saying so, where the stand-in can't be used."""
    if importlib.util.find_spec("cuda") is None:
        pytest.skip("the extra cuda isn't installed: nothing of the cuda device was tested")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler: nothing of the cuda device was tested")


@cache
def standin_folder() -> Path:
    """The folder with the library, compiled once for these sources on this machine."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"helios-standin-{os.getuid()}-{digest}"
    library = folder / _LIBRARY
    if not library.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        made = folder / f"{_LIBRARY}.{os.getpid()}"
        sources = [str(source) for source in _SOURCES if source.suffix == ".c"]
        command = ["cc", *_FLAGS, "-o", str(made), *sources, "-ldl", "-lpthread"]
        compiled = subprocess.run(command, capture_output=True, text=True, check=False)
        assert compiled.returncode == 0, compiled.stderr
        made.replace(library)  # other test processes may have made it too
    return folder


def standin_environment(**settings: str) -> dict[str, str]:
    """The environment of a process that has the stand-in for its driver."""
    paths = [str(standin_folder()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    python = os.pathsep.join([str(ROOT), *filter(None, sys.path), str(ROOT / "src")])
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths), "PYTHONPATH": python}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    return environment | settings


def run_child(
    module: str, arguments: Sequence[str], settings: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """A module as a child with the stand-in; fails the test with its traceback where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=standin_environment(**settings),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done
