"""Hostile grammars are refused by name or compiled, within bounds of processor time and memory.

They run in processes of their own whose limits end them: `hostile_child` has them, and prints what
each cost. A crash, a hang or a glutton is a case that died.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.frontend.grammar.hostile_cases import CASES
from tests.frontend.grammar.hostile_makers import EITHER, GRAMMAR, WHERE

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.frontend.grammar.hostile_child"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", CASES)
def test_each_ends_well(results: dict[str, dict[str, Any]], name: str) -> None:
    found, ends = results[name], CASES[name].ends
    assert found["ends"] in ("refused", "grammar"), found
    if found["ends"] == "refused":
        assert ends != GRAMMAR, found
        assert found["where"].startswith(WHERE)
        assert ends == EITHER or ends in found["text"], found
    else:
        assert ends in (GRAMMAR, EITHER), found
