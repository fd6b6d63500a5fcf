"""`helios trust`, and what the other commands make of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.server.real import NAMESPACE, run_cli


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty trust store for this test's commands."""
    path = tmp_path / "settings" / "trust.json"
    monkeypatch.setenv("HELIOS_TRUST", str(path))
    return path


@pytest.mark.clause("CORE-9")
def test_the_command_in_the_refusal_trusts_the_publisher(
    core_folder: Path, own_store: Path
) -> None:
    verify = ("verify", core_folder, "--accept", NAMESPACE)
    refused = run_cli(*verify)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    command = shlex.split(refused.stderr.split("`")[1])
    assert command[0] == "helios"
    assert run_cli(*command[1:]).returncode == 0
    trusted = run_cli(*verify)
    assert trusted.returncode == 0, trusted.stderr
    assert "(trusted)" in trusted.stdout
    assert run_cli("trust", "remove", *command[3:]).returncode == 0
    assert run_cli(*verify).returncode == 2


@pytest.mark.clause("CORE-9")
@pytest.mark.parametrize(
    "command", [("serve", "--port", "0"), ("generate", "hello"), ("chat", "--message", "hello")]
)
def test_nothing_runs_a_core_of_an_unknown_publisher(
    core_folder: Path, own_store: Path, command: tuple[str, ...]
) -> None:
    ended = run_cli(command[0], core_folder, *command[1:], "--accept", NAMESPACE)
    assert ended.returncode == 2
    assert "helios trust add" in ended.stderr


def test_an_unknown_publisher_can_be_allowed_and_anybody_inspected(
    core_folder: Path, own_store: Path
) -> None:
    for command in (
        ("generate", core_folder, "hello", "--accept", NAMESPACE, "--max-tokens", 1),
        ("verify", core_folder, "--accept", NAMESPACE),
    ):
        ended = run_cli(*command, "--allow-unknown-publisher")
        assert ended.returncode == 0, ended.stderr
    assert "(unknown)" in run_cli("inspect", core_folder).stdout
    assert not own_store.exists()


def test_keys_come_as_files_or_digits(publisher_key: Path, own_store: Path) -> None:
    public = publisher_key.with_name(publisher_key.name + ".pub")
    assert "nobody is trusted" in run_cli("trust", "list").stdout
    assert "trusted now" in run_cli("trust", "add", public, "--namespace", "a").stdout
    shown = run_cli("trust", "list").stdout
    assert "was trusted already" in run_cli("trust", "add", public, "--namespace", "a").stdout
    key, name = shown.split()
    assert name == "'a'"
    assert run_cli("trust", "add", key, "--namespace", "b c").returncode == 0
    assert run_cli("trust", "list").stdout == f"{key} 'a'\n{key} 'b c'\n"
    assert run_cli("trust", "remove", public, "--namespace", "b c").returncode == 0
    assert run_cli("trust", "list").stdout == shown


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("add", "00" * 32, "--namespace", ""), "is empty"),
        (("add", "absent.pub", "--namespace", "a"), "absent.pub"),
        (("add", "00" * 31, "--namespace", "a"), "can't be read"),
        (("remove", "00" * 32, "--namespace", "a"), "wasn't trusted"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], cause: str, own_store: Path) -> None:
    ended = run_cli("trust", *arguments)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert cause in ended.stderr
