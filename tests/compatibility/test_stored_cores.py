"""Cores of every released format are served as they were written, for ever.

If a test fails here, the reader has to change, not the stored core: tests/data/record_cores.py
says why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from helios import _native
from helios.core import ResourceKind
from helios.engine import Engine, GenerationOptions
from helios.runtime.device import DeviceOptions
from helios.runtime.devices.cpu import CpuDevice
from helios.runtime.every_program import run_every_program
from helios.runtime.geometry import Operation
from helios.runtime.native_model import NativeModel
from helios.runtime.reference.differ import LockstepDevice
from helios.schema import core_pb2
from tests.compatibility.stored import FOLDER, NAMES, StoredCore
from tests.server.real import run_cli, server_process

LARGEST_CORE_NBYTES = 150_000
SMALLEST_LEAD_NATS = 0.5
# The formats of all releases. Names are only ever added.
RELEASED = (
    "payload-2",
    "payload-2-int8",
    "payload-2-int4",
    "index-6",
    "index-4",
    "payload-2-operations",
)
KERNEL_PATHS = {
    "reference": {"target": "reference"},
    "avx512": {"instruction_set": "avx512"},
    "avx2": {"instruction_set": "avx2"},
    "portable": {"instruction_set": "portable"},
}


@pytest.fixture(params=NAMES)
def stored(request: pytest.FixtureRequest) -> StoredCore:
    return StoredCore(request.param)


@pytest.mark.clause("CORE-11")
def test_every_released_format_is_stored() -> None:
    assert set(RELEASED) <= set(NAMES)
    assert {StoredCore(name).carrier for name in NAMES} == {"payload 2", "index 6", "index 4"}


@pytest.mark.clause("CORE-11")
@pytest.mark.parametrize("kernel_path", list(KERNEL_PATHS))
def test_a_stored_core_serves_its_recorded_tokens(
    tmp_path: Path, stored: StoredCore, kernel_path: str
) -> None:
    options = KERNEL_PATHS[kernel_path]
    wanted = options.get("instruction_set")
    if wanted is not None and wanted not in _native.instruction_sets():
        pytest.skip(f"this machine doesn't run {wanted}")
    answers = stored.serve(tmp_path, **options)
    for case, answer in zip(stored.cases, answers, strict=True):
        assert list(answer.tokens) == case.tokens
        assert answer.logprobs == pytest.approx(case.logprobs, abs=stored.tolerance)


@pytest.mark.clause("CORE-11")
def test_every_program_of_a_stored_core_runs_as_the_reference_does(stored: StoredCore) -> None:
    device = LockstepDevice(CpuDevice(DeviceOptions(threads=1)))
    with NativeModel.load(stored.open(), devices=(device,)) as model:
        run_every_program(model.runtime)
        operations = {program.operation for program in model.runtime.geometry.programs}
    assert device.first_difference is None, str(device.first_difference)
    later = {Operation.RESTORE, Operation.RESUME, Operation.SNAPSHOT, Operation.MIXED,
             Operation.SCORED_PREFILL}  # fmt: skip
    assert (operations >= later) == (stored.folder.name == "payload-2-operations")


@pytest.mark.clause("CORE-11")
def test_a_stored_core_is_still_the_one_that_was_recorded(stored: StoredCore) -> None:
    core = stored.open()
    assert core.digest == stored.digest
    nbytes = sum(path.stat().st_size for path in stored.folder.rglob("*") if path.is_file())
    assert nbytes < LARGEST_CORE_NBYTES
    assert all(lead >= SMALLEST_LEAD_NATS for case in stored.cases for lead in case.leads)
    oracle = core_pb2.Oracle.FromString(
        core.read_resource(core.decoded.oracle_resource, ResourceKind.ORACLE)
    )
    assert oracle.cases


@pytest.mark.clause("CORE-2")
def test_the_same_content_was_stored_in_every_carrier() -> None:
    payload, *logical = (StoredCore(name) for name in ("payload-2", "index-6", "index-4"))
    weights = bytes(payload.open().map_weights("weights.cpu").content)
    for stored in logical:
        core = stored.open()
        assert core.contract.model == payload.open().contract.model
        assert bytes(core.map_weights("weights.cpu").content) == weights
        assert stored.cases == payload.cases


@pytest.mark.clause("CORE-2", "CORE-7", "CORE-8")
@pytest.mark.parametrize("name", ["payload-2", "index-6", "index-4"])
def test_every_carrier_ends_in_the_same_running_server(tmp_path: Path, name: str) -> None:
    stored = StoredCore(name)
    key = stored.key_file(tmp_path)
    options = ["--threads", "1", *(["--core-key", str(key)] if key else [])]
    asked = {"model": name, "prompt": "hello world", "max_tokens": 8, "temperature": 0}
    with server_process(stored.folder, *options) as server:
        answered = server.http.post("/v1/completions", json=asked).json()
    assert answered["choices"][0]["text"] == expected_text()


def expected_text() -> str:
    """What the payload core answers in process."""
    stored = StoredCore("payload-2")
    with Engine.open(stored.folder, accept=stored.namespace, threads=1) as engine:
        wanted = GenerationOptions(max_tokens=8, temperature=0)
        return engine.generate(["hello world"], wanted)[0].text


@pytest.fixture
def sealed(tmp_path: Path) -> tuple[StoredCore, list[object]]:
    """The sealed core, and the options that open it."""
    stored = StoredCore("index-4")
    return stored, ["--core-key", stored.key_file(tmp_path)]


def test_the_commands_open_a_sealed_core(sealed: tuple[StoredCore, list[object]]) -> None:
    stored, key = sealed
    shown = run_cli("inspect", stored.folder, *key)
    assert "logical resources, index 4 (AES-GCM chunks)" in shown.stdout, shown.stderr
    accept = ("--accept", stored.namespace)
    verified = run_cli("verify", stored.folder, *accept, "--threads", 1, *key)
    assert "cases hold on cpu/" in verified.stdout, verified.stderr
    said = run_cli(
        "generate", stored.folder, *accept, "hello world", "--max-tokens", 8,
        "--temperature", 0, "--threads", 1, *key,
    )  # fmt: skip
    assert said.stdout.rstrip("\n") == expected_text().rstrip("\n"), said.stderr
    chatted = run_cli(
        "chat",
        stored.folder,
        *accept,
        "--message",
        "hello",
        "--max-tokens",
        4,
        "--threads",
        1,
        *key,
    )
    assert chatted.returncode == 0, chatted.stderr


@pytest.mark.clause("CORE-8")
@pytest.mark.parametrize("command", ["serve", "generate", "inspect", "verify"])
def test_a_sealed_core_is_refused_without_its_key(tmp_path: Path, command: str) -> None:
    stored = StoredCore("index-4")
    wrong = tmp_path / "wrong.key"
    wrong.write_bytes(bytes(32))
    more = [] if command == "inspect" else ["--accept", stored.namespace]
    more += ["hello"] if command == "generate" else []
    more += ["--port", "0"] if command == "serve" else []
    for options, complaint in (
        ([], "is sealed, and no core key was given"),
        (["--core-key", wrong], "is sealed with another core key"),
        (["--core-key", tmp_path / "none"], "none: is missing"),
    ):
        refused = run_cli(command, stored.folder, *more, *options)
        assert refused.returncode == 2
        assert complaint in refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_key_is_on_no_command_line(tmp_path: Path) -> None:
    stored = StoredCore("index-4")
    key = stored.key_file(tmp_path)
    with server_process(stored.folder, "--threads", "1", "--core-key", str(key)) as server:
        for pid in (server.process.pid, server.worker_pid()):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            for place in (command, environment):
                assert stored.core_key is not None
                assert stored.core_key.encode() not in place
                assert bytes.fromhex(stored.core_key) not in place


def test_nothing_else_lies_among_the_stored_cores() -> None:
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()}
    assert folders == set(NAMES)
