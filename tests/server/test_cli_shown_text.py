"""What a publisher wrote is shown as it is: it is no markup, moves no cursor and forges no row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rebuild.altered import altered
from tests.server.real import run_cli

ESCAPES = "\x1b[2J\x1b]0;title\x07\r\u202e"


def inspected(core: Path, folder: Path, namespace: str, licence: str) -> str:
    def change(body: Any, deployment: Any) -> None:
        body.publisher.namespace = namespace
        body.publisher.licence_terms = licence
        deployment.contract.served_id = "model[/i]"
        frame = body.executable_resources[1]
        assert frame.id == deployment.tokenizer_resource
        frame.id = deployment.tokenizer_resource = f"tokenizer[/i]{ESCAPES}"

    ended = run_cli("inspect", altered(core, folder, change))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    "text", ["tests[bold]", "[red]tests[/red]", "tests[/x]", "[link=http://x]"]
)
def test_inspect_takes_nothing_for_markup(core_folder: Path, tmp_path: Path, text: str) -> None:
    shown = inspected(core_folder, tmp_path / "core", text, text)
    assert shown.count(f"│ {text} ") == 2
    assert "│ model[/i], " in shown
    assert "│ tokenizer[/i]" in shown


def test_inspect_sends_the_terminal_nothing_that_it_obeys(
    core_folder: Path, tmp_path: Path
) -> None:
    shown = inspected(core_folder, tmp_path / "core", f"tests{ESCAPES}", f"one\ntwo{ESCAPES}")
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert r"\x1b[2J" in shown
    # A licence has lines, all of them inside its cell.
    assert "│ licence   │ one " in shown
    assert "│           │ two" in shown


def test_errors_send_the_terminal_nothing_that_it_obeys(core_folder: Path, tmp_path: Path) -> None:
    def change(body: Any, deployment: Any) -> None:
        deployment.targets[0].name = f"[/x]{ESCAPES}\n"

    core = altered(core_folder, tmp_path / "core", change)
    # Its only target is what is shown where no other is asked for.
    assert r"[/x]\x1b[2J" in run_cli("inspect", core).stdout
    ended = run_cli("inspect", core, "--target", "cpu")
    assert ended.returncode == 2
    assert all(c.isprintable() for c in ended.stderr.removesuffix("\n"))
    assert r"It has [/x]\x1b[2J" in ended.stderr


def test_logs_send_the_terminal_nothing_that_it_obeys(capfd: pytest.CaptureFixture[str]) -> None:
    probe = (
        "import logging, sys; from helios.logs import log_to_stderr; log_to_stderr();"
        "logging.getLogger('helios.core').warning('got %s', sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", probe, f"[/x]{ESCAPES}\n"], check=True)
    assert capfd.readouterr().err == (r"helios: got [/x]\x1b[2J\x1b]0;title\x07\r\u202e\n" + "\n")


def test_inspect_shows_a_namespace_that_looks_like_another(
    core_folder: Path, tmp_path: Path
) -> None:
    shown = inspected(core_folder, tmp_path / "core", "t\u0435sts", "")
    assert r"(in ASCII 't\u0435sts')" in shown
