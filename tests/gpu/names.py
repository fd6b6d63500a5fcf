"""Names in a bundle."""

from __future__ import annotations

from typing import Final

MANIFEST: Final = "manifest.pb"
MODULES: Final = "modules"


def program_name(trial: str, run: str) -> str:
    """Of a run's program."""
    return f"{trial}: {run}"
