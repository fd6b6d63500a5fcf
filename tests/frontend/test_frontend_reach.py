"""What a core's syntax reaches: the frontend, and nothing that schedules, caches or computes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import helios

_ROOT = Path(helios.__file__).parent
_SELECTORS = {
    "ToolParser",
    "ReasoningParser",
    "ImagePreparation",
    "ImageLayout",
    "ToolSyntax",
    "ReasoningSyntax",
    "EnvelopeSyntax",
    "FrontendContract",
}


def _names(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return names | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _read_of_frontend(path: Path) -> set[str]:
    """What of a contract's frontend a module reads."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "frontend"
    }


@pytest.mark.clause("FRONT-17")
@pytest.mark.parametrize("room", ["scheduler", "runtime", "kernels"])
def test_frontend_identifiers_select_nothing_else(room: str) -> None:
    modules = list((_ROOT / room).rglob("*.py"))
    assert modules
    for module in modules:
        assert not _names(module) & _SELECTORS, module
        assert _read_of_frontend(module) <= {"eos_ids"}, module
