"""Fuzzing leaves no folders in memory, though libFuzzer ends its processes at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fuzz.stored import scratch_of_children

CHILD = "import os; from fuzz.stored import scratch; print(scratch(), flush=True); os._exit(0)"


def test_the_folder_of_a_process_that_ends_at_once_is_deleted() -> None:
    with scratch_of_children() as environment:
        shown = subprocess.check_output([sys.executable, "-c", CHILD], env=environment, text=True)
        folder = Path(shown.strip())
        assert folder.is_dir()
    assert not folder.parent.exists()
