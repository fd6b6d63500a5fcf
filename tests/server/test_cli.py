"""The `helios` command as a process: what it prints, how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helios.contract import decode
from helios.contract.json_form import from_json
from helios.errors import HeliosError
from helios.sizes import parse_size, parse_size_or_share, show_size
from tests.server.real import NAMESPACE, ServerProcess, run_cli

ACCEPT = ("--accept", NAMESPACE)
SAME = ("--temperature", 0, "--max-tokens", 12)


def _succeeds(*arguments: object, text: str = "") -> str:
    ended = run_cli(*arguments, text=text)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_generate_continues_a_text(core_folder: Path) -> None:
    first = _succeeds("generate", core_folder, *ACCEPT, "hello", *SAME)
    assert first == _succeeds("generate", core_folder, *ACCEPT, "hello", *SAME)
    assert len(first) > 1


def test_chat_answers_alike_from_a_core_and_from_a_server(
    core_folder: Path, real_server: ServerProcess
) -> None:
    asked = ("--message", "hello", *SAME)
    in_process = _succeeds("chat", core_folder, *ACCEPT, *asked)
    assert in_process == _succeeds("chat", "--server", real_server.url, *asked)
    assert in_process == _succeeds("chat", "--server", real_server.url + "/v1/", *asked)
    system = _succeeds("chat", core_folder, *ACCEPT, *asked, "--system", "Be brief.")
    assert system != in_process


def test_chat_goes_on_until_its_input_ends(core_folder: Path, real_server: ServerProcess) -> None:
    lines = "hello\n\nworld\n"
    spoken = _succeeds("chat", core_folder, *ACCEPT, *SAME, text=lines)
    assert spoken.count("> ") == 4
    assert spoken == _succeeds("chat", "--server", real_server.url, *SAME, text=lines)


def test_inspect_shows_what_a_core_holds(core_folder: Path) -> None:
    shown = _succeeds("inspect", core_folder)
    for expected in ("tests", "tiny, little", "512 tokens", "decode.b8", "prefill.p128", "weights"):
        assert expected in shown
    fewer = _succeeds("inspect", core_folder, "--max-active", 1, "--cache-memory", "1MiB")
    assert "Memory on cpu with 1 slots" in fewer
    assert fewer.count(" no ") > shown.count(" no ")


def test_inspect_shows_a_programs_launches(core_folder: Path) -> None:
    shown = _succeeds("inspect", core_folder, "--program", "decode.b1")
    assert "rms_norm" in shown
    assert "capacity=1" in shown
    ended = run_cli("inspect", core_folder, "--program", "decode.b999")
    assert ended.returncode == 2
    assert "decode.b1" in ended.stderr


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_verify_reads_every_byte(core_folder: Path, target: str) -> None:
    shown = _succeeds("verify", core_folder, *ACCEPT, "--target", target)
    assert "signature: by " in shown
    assert "content: " in shown
    assert "oracle: " in shown


def test_verify_names_damage(core_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "core"
    subprocess.run(["cp", "-r", core_folder, copy], check=True)
    largest = max((copy / "resources").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    ended = run_cli("verify", copy, *ACCEPT)
    assert ended.returncode == 2
    assert largest.name in ended.stderr


def test_the_publishers_key_is_demanded(core_folder: Path, publisher_key: Path) -> None:
    public = publisher_key.with_name(publisher_key.name + ".pub")
    _succeeds("verify", core_folder, *ACCEPT, "--publisher-key", public)
    _succeeds("inspect", core_folder, "--publisher-key", public)
    for wrong in (publisher_key, core_folder / "core.pb", core_folder / "absent"):
        ended = run_cli("verify", core_folder, *ACCEPT, "--publisher-key", wrong)
        assert ended.returncode == 2
        assert str(wrong) in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["chat"], "CORE"),
        (["chat", "core", "--server", "http://localhost"], "CORE"),
        (["chat", "core"], "--accept"),
        (["chat", "--server", "http://127.0.0.1:9", "--message", "x"], "helios serve"),
        (["chat", "--server", "nonsense", "--message", "x"], "nonsense"),
        (["generate", "absent", "--accept", "x", "hello"], "absent"),
        (["verify", "absent", "--accept", "x"], "absent"),
        (["verify", "absent", "--accept", "x", "--target", "abacus"], "abacus"),
        (["inspect", "absent"], "absent"),
        (["serve", "absent", "--accept", "x", "--port", "0"], "absent"),
        (["serve", "absent", "--accept", "x", "--cache-memory", "much"], "much"),
    ],
)
def test_errors_are_one_line_with_status_two(arguments: list[str], cause: str) -> None:
    ended = run_cli(*arguments)
    assert ended.returncode == 2
    assert ended.stderr.startswith("helios: ")
    assert ended.stderr.count("\n") == 1
    assert cause in ended.stderr


def test_a_servers_refusal_is_shown(real_server: ServerProcess) -> None:
    ended = run_cli("chat", "--server", real_server.url, "--message", "x", "--max-tokens", 9000)
    assert ended.returncode == 2
    assert "9000" in ended.stderr


def test_help_and_serving_import_no_more_than_they_need() -> None:
    def imported(code: str) -> set[str]:
        script = f"import sys\n{code}\nprint(*sys.modules)"
        command = [sys.executable, "-c", script]
        return set(subprocess.check_output(command, text=True).split())

    cli = imported("import helios.cli")
    assert not cli & {"numpy", "starlette", "uvicorn", "tokenizers", "google.protobuf", "asyncio"}
    before_the_worker = imported("import helios.server.server")
    assert not before_the_worker & {"uvicorn", "starlette", "jinja2", "numpy"}
    serving = imported("import helios.server.serving")
    assert {"uvicorn", "starlette", "jinja2"} <= serving
    assert not serving & {"numpy", "helios._native", "rich", "prometheus_client", "httpx"}


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("123456", 123456),
        ("2GiB", 2 << 30),
        ("2g", 2 << 30),
        ("1.5 MiB", 3 << 19),
        ("500MB", 500_000_000),
        ("7b", 7),
        ("1 TiB", 1 << 40),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "much", "-1", "1 PiB", "GiB", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(HeliosError, match="is no size"):
        parse_size(text)


@pytest.mark.clause("BOOT-7")
@pytest.mark.parametrize(
    ("text", "size"), [("25%", 0.25), (" 0.5 %", 0.005), ("100%", 1.0), ("2GiB", 2 << 30)]
)
def test_cache_memory_is_a_size_or_a_share(text: str, size: float) -> None:
    got = parse_size_or_share(text)
    assert got == size
    assert isinstance(got, float) == ("%" in text)


@pytest.mark.parametrize("text", ["0%", "101%", "-1%", "%", "5%%", "much"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(HeliosError, match=r"is no (share|size)"):
        parse_size_or_share(text)


def test_inspect_prints_the_contract_as_it_was_signed(core_folder: Path) -> None:
    message = from_json(_succeeds("inspect", core_folder, "--contract"))
    assert message.served_id == "tiny"
    assert decode(message).max_active == 8


def test_sizes_are_shown_in_fitting_units() -> None:
    shown = [show_size(n) for n in (0, 1023, 1024, 1536 << 10, 3 << 30, 5 << 40)]
    assert shown == ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "3.00 GiB", "5120.00 GiB"]
