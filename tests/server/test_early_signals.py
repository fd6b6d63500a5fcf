"""Signals that arrive while a server's processes start, and streams that were closed before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from helios.server.end_signals import EndSignals
from tests.server.real import DEADLINE_S, NAMESPACE

SERVE = ("serve", "--accept", NAMESPACE, "--port", "0", "--threads", "1")

# Sends this process signals in the midst of its start, when it imports what HTTP needs (LOADING),
# or as soon as it has said that it listens.
INTERRUPTED = """
import os, signal, sys
from helios import cli_serve
from helios.cli import main

# Whoever starts tests in the background lets them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if LOADING and name == "helios.server.serving":
            for number in NUMBERS:
                os.kill(os.getpid(), number)

sys.meta_path.insert(0, Interrupting())
said = cli_serve._report

def report(line):
    said(line)
    if not LOADING and line.startswith("listening"):
        for number in NUMBERS:
            os.kill(os.getpid(), number)

cli_serve._report = report
main()
"""

# Interrupts this process at the first of the imports of another HTTP process's own.
IMPORTING = """
import os, runpy, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "helios.server.child_order":
            os.kill(os.getpid(), signal.SIGINT)
            print("interrupted", flush=True)

sys.meta_path.insert(0, Interrupting())
runpy.run_module("helios.server.http_child", run_name="__main__")
"""


def ended(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def interrupted(numbers: Sequence[int], *, loading: bool) -> str:
    """The script that sends these signals."""
    return INTERRUPTED.replace("NUMBERS", str(list(numbers))).replace("LOADING", str(loading))


@pytest.mark.parametrize("loading", [True, False])
@pytest.mark.parametrize("names", ["SIGINT", "SIGTERM", "SIGINT SIGINT"])
def test_signals_while_it_loads_and_later_are_a_clean_end(
    core_folder: Path, names: str, loading: bool
) -> None:
    numbers = [int(signal.Signals[name]) for name in names.split()]
    done = ended(["-c", interrupted(numbers, loading=loading), *SERVE, str(core_folder)])
    assert done.returncode == 0, done.stderr
    if loading:
        assert not done.stdout, "what isn't loaded yet may still be refused"
    else:
        assert done.stdout.startswith("listening on ")
    assert "Traceback" not in done.stderr


def test_signals_wait_for_whoever_obeys_and_then_do_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    stops: list[str] = []
    with EndSignals() as signals:
        signals.take()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stops == []
        with signals.obeyed_by(lambda: stops.append("stop")):
            assert stops == ["stop"] * 2
            os.kill(os.getpid(), signal.SIGINT)
            assert stops == ["stop"] * 3
        os.kill(os.getpid(), signal.SIGTERM)
        assert stops == ["stop"] * 3
    assert signal.getsignal(signal.SIGINT) == before


def test_another_http_process_isnt_interrupted_while_it_imports() -> None:
    done = ended(["-c", IMPORTING])
    assert done.stdout == "interrupted\n"
    assert "KeyboardInterrupt" not in done.stderr
    assert "EOFError" in done.stderr, "it went on to read its order, which there is none of"


def without(*descriptors: int) -> list[str]:
    """A script that closes descriptors and runs a command line of `helios` in its place."""
    script = (
        f"import os, sys\nfor one in {descriptors}: os.close(one)\n"
        "os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
    )
    return ["-c", script]


@pytest.mark.parametrize("descriptors", [(2,), (0, 2), (1, 2), (0, 1, 2)])
def test_a_server_serves_without_standard_streams(
    core_folder: Path, tmp_path: Path, descriptors: tuple[int, ...]
) -> None:
    """It is asked to end as soon as it listens: what it says is in no connection."""
    script = interrupted([int(signal.SIGTERM)], loading=False)
    (tmp_path / "interrupted.py").write_text(script)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    }
    command = [*without(*descriptors), "interrupted", *SERVE, str(core_folder)]
    done = ended(command, env=environment)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("listening on ") is (1 not in descriptors)


def test_errors_without_standard_error_are_in_no_file(tmp_path: Path) -> None:
    """Where a descriptor is free, the next file that is opened would take it."""
    key = tmp_path / "publisher.key"
    done = ended([*without(2), "ignition.cli", "keygen", str(key)])
    assert done.returncode == 0
    assert (done.stdout, done.stderr) == ("", "")
    assert key.read_text().startswith("-----BEGIN")
    assert key.read_text().rstrip().endswith("-----")
    assert ended([*without(2), "ignition.cli", "keygen", str(key)]).returncode == 2
