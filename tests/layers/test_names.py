"""Helios knows no model: neither a recipe's module nor a family's name occurs in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import helios

HELIOS = Path(helios.__file__).resolve().parent
FAMILIES = (
    "llama",
    "smollm",
    "mistral",
    "mixtral",
    "qwen",
    "gemma",
    "phi3",
    "falcon",
    "kimi",
    "glm",
    "deepseek",
)
# The names of frontend syntaxes may occur where syntaxes live.
SYNTAX_FOLDERS = (HELIOS / "frontend" / "tools", HELIOS / "frontend" / "reasoning")


@pytest.mark.clause("CONTRACT-8")
def test_no_model_family_occurs_in_helios() -> None:
    pattern = re.compile("|".join(FAMILIES), re.IGNORECASE)
    sources = [
        path
        for pattern_of_files in ("*.py", "*.pyi")
        for path in HELIOS.rglob(pattern_of_files)
        if not any(path.is_relative_to(folder) for folder in SYNTAX_FOLDERS)
    ]
    assert len(sources) > 20
    found = [
        f"{path.relative_to(HELIOS)}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found


@pytest.mark.parametrize("module", ["helios.server.app", "helios.worker.process", "helios.engine"])
def test_serving_imports_no_preparation_or_model_library(module: str) -> None:
    forbidden = "ignition torch triton transformers gguf safetensors"
    code = (
        f"import sys, {module}\n"
        f"print(sorted(set(m.split('.')[0] for m in sys.modules) & set('{forbidden}'.split())))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert out.strip() == "[]"
