"""The `helios` command as a process: what it prints, how it ends."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from helios.cli_chat import Thought, answer_once, converse
from helios.cli_verify import content_line, verify_core
from helios.contract import decode
from helios.contract.json_form import from_json
from helios.core import open_core
from helios.core.verification import Pace, Verified
from helios.errors import ExecutionError
from helios.runtime.reference.differ import LockstepDevice
from helios.runtime.reference.tolerances import TOLERANCES
from helios.runtime.targets import deployed_rank, read_manifest
from helios.version import VERSION
from helios.worker.options import WorkerOptions
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
    assert "> " not in spoken  # prompts are for terminals
    assert spoken.count("\n") >= 2
    assert spoken == _succeeds("chat", "--server", real_server.url, *SAME, text=lines)


def test_inspect_shows_what_a_core_holds(core_folder: Path) -> None:
    shown = _succeeds("inspect", core_folder)
    for expected in ("tests", "tiny, little", "512 tokens", "decode.b8", "prefill.p128", "weights"):
        assert expected in shown
    fewer = _succeeds("inspect", core_folder, "--max-active", 1, "--cache-memory", "1MiB")
    assert "Memory on cpu with 1 slot and" in fewer
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
    (content,) = [line for line in shown.splitlines() if line.startswith("content: ")]
    assert content.endswith("B, too little to say how fast")
    assert "B/s" not in content
    assert "oracle: " in shown


@pytest.mark.parametrize(
    ("checked", "read", "line"),
    [
        (
            Pace(3 << 30, 2.0),
            Pace(1 << 30, 0.5),
            "content: 3.00 GiB in 2.00 s, that is 1.61 GB/s on 4 cores;"
            " reading alone gives 2.15 GB/s",
        ),
        (
            Pace(64 << 20, 0.5),
            Pace(64 << 20, 0.25),
            "content: 64.0 MiB in 0.50 s, that is 134 MB/s on 4 cores;"
            " reading alone gives 268 MB/s",
        ),
        (
            Pace(64 << 20, 0.5),
            Pace(0, 0.0),
            "content: 64.0 MiB in 0.50 s, that is 134 MB/s on 4 cores",
        ),
        (
            Pace(88 << 10, 0.001),
            Pace(88 << 10, 0.001),
            "content: 88.0 KiB, too little to say how fast",
        ),
    ],
)
def test_verify_rates_what_there_is_enough_of(checked: Pace, read: Pace, line: str) -> None:
    assert content_line(Verified(checked, read), 4) == line


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
        (["chat", "--server", "localhost:8399"], "Write http://localhost:8399"),
        (["chat", "--server", "http://localhost", "--message", ""], "--message: is empty"),
        (["verify", "absent", "--accept", "x", "--target", "reference", "--replay"], "--replay"),
        (["generate", "absent", "--accept", "x", "hello"], "absent"),
        (["verify", "absent", "--accept", "x"], "absent"),
        (["verify", "absent", "--accept", "x", "--target", "abacus"], "abacus"),
        (["inspect", "absent"], "absent: there is no such folder"),
        (["serve", "absent", "--accept", "x", "--port", "0"], "absent: there is no such folder"),
        (["serve", "absent", "--accept", "x", "--cache-memory", "much"], "much"),
        (["serve", "absent", "--accept", "x", "--max-step-ms", "0"], "max_step_ms"),
        (
            ["serve", "absent", "--accept", "x", "--prompt-cache-size", "1GiB"],
            "(--prompt-cache-size): is the size of nothing. Name the folder too",
        ),
        (
            ["generate", "absent", "--accept", "x", "hello", "--offload-memory", "25%"],
            "--offload-memory: '25%' is no size. Write it like 2GiB or 500MB",
        ),
        (
            ["chat", "absent", "--accept", "x", "--prompt-cache", "d", "--prompt-cache-size", "2X"],
            "--prompt-cache-size: '2X' is no size",
        ),
        (
            ["serve", "absent", "--accept", "x", "--prompt-cache", "d", "--no-prefix-reuse"],
            "(--prompt-cache): keeps what prefix reuse is switched off for. Leave out",
        ),
        (["serve", "absent", "--accept", "x", "--prefill-share", "1"], "prefill_share"),
        (["serve", "absent", "--accept", "x", "--cache-memory", "5i"], "'5i' is no size"),
    ],
)
def test_errors_are_one_line_with_status_two(arguments: list[str], cause: str) -> None:
    ended = run_cli(*arguments)
    assert ended.returncode == 2
    assert ended.stderr.startswith("helios: ")
    assert ended.stderr.count("\n") == 1
    assert cause in ended.stderr


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (["--accept", "somebody"], "somebody"),
        ([*ACCEPT, "--max-active", "9"], "9 asked for"),
        ([*ACCEPT, "--cache-memory", "1KiB"], "1.0 KiB hold 0 pages"),
        ([*ACCEPT, "--cache-memory", "0.0000000001%"], "B hold 0 pages"),
        ([*ACCEPT, "--cache-memory", "999TiB"], "999.00 TiB asked for, but of the "),
        ([*ACCEPT, "--speculative-width", "2"], "without speculation"),
        ([*ACCEPT, "--history-drafting"], "history drafting"),
        ([*ACCEPT, "--core-key", "absent"], "absent: is missing"),
        ([*ACCEPT, "--prompt-cache", "/dev/null"], "/dev/null can't be used (it is no folder)"),
        ([*ACCEPT, "--prompt-cache", "/dev/null/x"], "(--prompt-cache): /dev/null/x can't be"),
    ],
)
def test_serving_refuses_what_it_can_tell_before_it_says_that_it_listens(
    core_folder: Path, options: list[str], cause: str
) -> None:
    ended = run_cli("serve", core_folder, "--port", 0, *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert cause in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_model_that_doesnt_stop_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    speaker = _Endless()
    answer_once(speaker, "go on", None, 3)
    shown = capsys.readouterr()
    assert shown.out == "on on on \n"
    assert "--max-tokens" in shown.err
    assert speaker.closed


def test_what_a_terminal_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    converse(_Endless(), None)
    shown = capsys.readouterr()
    assert shown.out == "> \n"
    assert "Ctrl-D" in shown.err


class _Thinking:
    """A speaker that thinks first. Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[dict[str, str]]] = []

    def answer(self, messages: list[dict[str, str]]) -> Generator[str]:
        self.asked.append([*messages])
        yield from (Thought("so"), Thought(" it is"), "", "Four", ".")


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [(True, "\x1b[2mso it is\x1b[22m\nFour.\n"), (False, "Four.\n")],
)
def test_reasoning_is_dimmed_on_a_terminal_and_no_part_of_the_answer(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    shown: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("2+2\nand?\n"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    speaker = _Thinking()
    converse(speaker, None)
    assert capsys.readouterr().out == 2 * shown
    assert speaker.asked[1][1] == {"role": "assistant", "content": "Four."}


class _Terminal(io.StringIO):
    """A terminal where nothing is typed."""

    def isatty(self) -> bool:
        return True


class _Endless:
    """A speaker that never ends by itself."""

    closed = False

    def answer(self, messages: list[dict[str, str]]) -> Generator[str]:
        try:
            while True:
                yield "on "
        finally:
            self.closed = True


@pytest.mark.parametrize(
    ("arguments", "said"), [(["-h"], "serve"), (["--version"], f"helios {VERSION}\n")]
)
def test_help_and_version(arguments: list[str], said: str) -> None:
    assert said in _succeeds(*arguments)


def test_a_replay_compares_every_launch(core_folder: Path) -> None:
    shown = _succeeds("verify", core_folder, *ACCEPT, "--replay", "--threads", 1)
    found = re.search(r"all (\d+) launches of (\d+) programs agree with the reference", shown)
    assert found is not None
    core = open_core(core_folder, accept=NAMESPACE, allow_unknown_publisher=True)
    captured = read_manifest(core, deployed_rank(core, "cpu")).programs
    assert int(found[2]) == len(captured)
    assert int(found[1]) > sum(len(program.launches) for program in captured)


def test_a_launch_that_differs_is_named(core_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No device is as exact as this asks for.
    monkeypatch.setattr(LockstepDevice.__init__, "__defaults__", (dict.fromkeys(TOLERANCES, -1.0),))
    with pytest.raises(ExecutionError, match=r"program \S+, launch \d+ .* in buffer"):
        verify_core(
            WorkerOptions(core=str(core_folder), accept=NAMESPACE, threads=1, request_slots=1),
            "cpu",
            lockstep=True,
        )


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
    assert not before_the_worker & {"uvicorn", "starlette", "jinja2", "numpy", "helios.core"}
    capacities = imported("import helios.runtime.capacities, helios.runtime.targets")
    assert "numpy" not in capacities
    serving = imported("import helios.server.serving")
    assert {"uvicorn", "starlette", "jinja2"} <= serving
    assert not serving & {"numpy", "helios._native", "rich", "prometheus_client", "httpx"}


def test_inspect_prints_the_contract_as_it_was_signed(core_folder: Path) -> None:
    message = from_json(_succeeds("inspect", core_folder, "--contract"))
    assert message.served_id == "tiny"
    assert decode(message).max_active == 8
