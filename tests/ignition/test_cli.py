"""The `ignition` command: what it writes and shows, how errors and signals end it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from helios.contract import PreparedContract
from helios.core import open_core
from helios.version import VERSION
from ignition.cli import main
from ignition.preparation import oracle
from tests.checkpoints import write_gguf, write_huggingface

Folder = Callable[[str], Path]


def run(*arguments: object) -> int:
    """The exit status of the command."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "publisher.key"
    assert run("keygen", path) == 0
    return path


def contract_of(core: Path) -> PreparedContract:
    return open_core(core, accept="tests", allow_unknown_publisher=True).contract


def prepare(source: object, out: object, key: object, *more: object) -> int:
    return run("prepare", source, out, "--key", key, "--namespace", "tests", *more)


SMALL = ("--max-active", 2, "--prefill", "16", "--decode", "1,2", "--max-context", 64)


def test_a_checkpoint_becomes_a_core(checkpoint_folder: Folder, tmp_path: Path, key: Path) -> None:
    source, out = checkpoint_folder("smollm"), tmp_path / "core"
    assert (
        prepare(source, out, key, *SMALL, "--storage", "int8", "--alias", "a", "--alias", "b") == 0
    )
    contract = contract_of(out)
    assert contract.served_id == "smollm"  # from the checkpoint's name
    assert contract.aliases == ("a", "b")
    assert (contract.max_active, contract.prefill_extents) == (2, (16,))
    assert contract.max_context_tokens == 64


@pytest.mark.parametrize("name", ["Tiny-1.7B", "Tiny-1.7B.gguf"])
def test_the_served_id_defaults_to_the_checkpoint_s_name(
    tmp_path: Path, key: Path, name: str
) -> None:
    write = write_gguf if name.endswith(".gguf") else write_huggingface
    source = write(tmp_path / name, "llama")
    assert prepare(source, tmp_path / "core", key, *SMALL) == 0
    assert contract_of(tmp_path / "core").served_id == "tiny-1.7b"


def test_force_replaces_a_core(checkpoint_folder: Folder, tmp_path: Path, key: Path) -> None:
    source, out = checkpoint_folder("smollm"), tmp_path / "core"
    assert prepare(source, out, key, *SMALL, "--served-id", "first") == 0
    assert prepare(source, out, key, *SMALL, "--served-id", "second") == 2
    assert contract_of(out).served_id == "first"
    assert prepare(source, out, key, *SMALL, "--served-id", "second", "--force") == 0
    assert contract_of(out).served_id == "second"


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("recipes") == 0
    shown = capsys.readouterr().out
    assert "llama" in shown
    assert "Qwen3ForCausalLM" in shown.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("prepare", "{none}", "{out}", "--key", "{key}", "--namespace", "n"), "no such file"),
        (("prepare", "{source}", "{out}", "--key", "{none}", "--namespace", "n"), "can't be read"),
        (("prepare", "{source}", "{out}", "--key", "{source}/config.json", "--namespace", "n"),
         "no unencrypted PEM private key"),
        (("prepare", "{source}", "{tmp}", "--key", "{key}", "--namespace", "n"), "exists already"),
        (("prepare", "{source}", "{tmp}", "--key", "{key}", "--namespace", "n", "--force"),
         "exists and is no core"),
        (("prepare", "{key}", "{out}", "--key", "{key}", "--namespace", "n"), "ignition: "),
        (("prepare", "{source}", "{out}", "--key", "{key}", "--namespace", ""), "namespace"),
        (("prepare", "{source}", "{out}", "--key", "{key}", "--namespace", "n" * 257),
         "at most 256"),
        (("prepare", "{source}", "{out}", "--key", "{key}", "--namespace", "n",
          "--recipe", "bert"), "no recipe 'bert'"),
        (("prepare", "{source}", "{out}", "--key", "{key}", "--namespace", "n",
          "--max-context", "1000000"), "more than the model's"),
        (("keygen", "{key}"), "exists already"),
        (("keygen", "{tmp}/no/such/folder/key"), "can't be written"),
    ],
)  # fmt: skip
def test_errors_are_one_line(
    checkpoint_folder: Folder,
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    places = {
        "none": tmp_path / "none",
        "out": tmp_path / "out",
        "key": key,
        "source": checkpoint_folder("llama"),
        "tmp": tmp_path,
    }
    capsys.readouterr()
    assert run(*(argument.format_map(places) for argument in arguments)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("ignition: ")
    assert said in lines[-1]
    assert not any("Traceback" in line for line in lines)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--prefill", "32,x"),
        ("--decode", ""),
        ("--storage", "int3"),
        ("--max-active", "many"),
        ("--max-active", "0"),
        ("--max-context", "0"),
    ],
)
def test_options_that_can_t_be_read_are_named(
    checkpoint_folder: Folder,
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
    value: str,
) -> None:
    assert prepare(checkpoint_folder("llama"), tmp_path / "out", key, option, value) == 2
    shown = capsys.readouterr().err
    assert option in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--recipe", "bert", "llama"),
        ("--prefill", "0", "positive"),
        ("--decode", "1,2", "32"),
        ("--target", "tpu", "cpu"),
        ("--namespace", "", "publisher"),
        ("--alias", "checkpoint", "once"),
    ],
)
def test_options_are_checked_before_the_checkpoint_is_read(
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
    value: str,
    said: str,
) -> None:
    capsys.readouterr()
    assert prepare(tmp_path / "checkpoint", tmp_path / "out", key, option, value) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option in line
    assert said in line


def test_an_empty_folder_is_filled(checkpoint_folder: Folder, tmp_path: Path, key: Path) -> None:
    out = tmp_path / "core"
    out.mkdir()
    assert prepare(checkpoint_folder("llama"), out, key, *SMALL) == 0
    assert open_core(out, accept="tests", allow_unknown_publisher=True).contract.max_active == 2


def test_stages_are_plain_lines_where_there_is_no_terminal(
    checkpoint_folder: Folder, tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert prepare(checkpoint_folder("llama"), tmp_path / "core", key, *SMALL) == 0
    shown = capsys.readouterr().err
    assert re.search(r"^packing weights … \d+\.\d s$", shown, re.MULTILINE)
    assert "\x1b" not in shown
    assert "━" not in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cleans_up_and_says_so(
    checkpoint_folder: Folder,
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    out = tmp_path / "new" / "core"
    seen: list[str] = []

    def interrupted(*arguments: object) -> None:
        seen.extend(path.name for path in out.parent.iterdir())
        os.kill(os.getpid(), number)

    monkeypatch.setattr(oracle, "record", interrupted)
    before = signal.getsignal(number)
    assert prepare(checkpoint_folder("llama"), out, key, *SMALL) == 128 + number
    assert len(seen) == 1
    assert list(out.parent.iterdir()) == []
    assert capsys.readouterr().err.splitlines()[-1] == "ignition: interrupted"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_has_two_names(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert run(option) == 0
    assert "prepare" in capsys.readouterr().out


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"ignition {VERSION}\n"
