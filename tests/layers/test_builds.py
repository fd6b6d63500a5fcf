"""Installs from one checkout at the same time don't meet in one build folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120

# A native library's build that is in its folder until the other build is in its own.
NATIVE = """
cmake_minimum_required(VERSION 3.20)
project(native LANGUAGES NONE)
add_custom_target(meet ALL
  COMMAND "$ENV{BUILDER}" "${CMAKE_SOURCE_DIR}/meet.py" "${CMAKE_BINARY_DIR}")
"""
MEET = """
import os, pathlib, socket, sys

folder = sys.argv[1]
with socket.create_connection(("127.0.0.1", int(os.environ["MEETING"]))) as meeting:
    meeting.sendall(folder.encode() + b"\\n")
    assert meeting.recv(1) == b"!", "the other build never came"
"""
BUILD = "import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1])"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What our project says of its build, with a native library that meets another build."""
    folder = tmp_path / "checkout"
    (folder / "native").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for package in ("helios", "ignition"):
        (folder / "src" / package).mkdir(parents=True)
        (folder / "src" / package / "__init__.py").touch()
    (folder / "native" / "CMakeLists.txt").write_text(NATIVE)
    (folder / "native" / "meet.py").write_text(MEET)
    return folder


def test_two_builds_at_once_have_a_folder_each(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core", reason="the build's backend isn't installed here")
    with socket.create_server(("127.0.0.1", 0)) as meeting, ExitStack() as ending:
        meeting.settimeout(DEADLINE_S)
        environment = {
            **os.environ,
            "MEETING": str(meeting.getsockname()[1]),
            "BUILDER": sys.executable,
        }
        builds = []
        for name in ("one", "other"):
            build = subprocess.Popen(
                [sys.executable, "-c", BUILD, str(tmp_path / name)],
                cwd=checkout,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            builds.append(ending.enter_context(build))
            ending.callback(build.kill)
        connections = [ending.enter_context(meeting.accept()[0]) for _ in builds]
        folders = [one.makefile().readline().strip() for one in connections]
        for one in connections:
            one.sendall(b"!")
        for build in builds:
            said, _ = build.communicate(timeout=DEADLINE_S)
            assert build.returncode == 0, said
    assert folders[0] != folders[1]
    assert not [folder for folder in folders if Path(folder).exists()], "they go away"


def test_make_keeps_its_folder_behind_a_lock(tmp_path: Path) -> None:
    for program in ("make", "flock"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here")
    asked = ["make", "--dry-run", "test", f"VENV={tmp_path / 'venv'}"]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in said.splitlines() if "--editable" in line)
    assert line.startswith("flock build/make.lock ")
    assert "--config-settings=build-dir=build/make/{wheel_tag} " in line
