"""Cores of every released format are compared with what this Ignition makes of their checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helios.core import open_core
from helios.core.resources import SealedResource
from helios.errors import CoreError
from helios.schema import core_pb2
from ignition.preparation.comparison import Comparison, Verdict
from ignition.preparation.rebuild import rebuild
from tests.compatibility.stored import NAMES, StoredCore
from tests.core.logical_core import CORE_KEY, sealed_index, write_index
from tests.core.sample_core import KEY, PUBLIC_KEY
from tests.data.record_cores import CORES, write_checkpoint
from tests.rebuild.test_rebuild import run
from tests.silence import Silent


def checkpoint_of(name: str, scratch: Path) -> Path:
    """What a stored core was prepared from."""
    return write_checkpoint(scratch / "checkpoint", CORES[name].variant)


@pytest.fixture
def sealed_checkpoint(tmp_path: Path) -> Path:
    """What the sealed core was prepared from."""
    return checkpoint_of("index-4", tmp_path)


def check(folder: Path, checkpoint: Path, *, sealed: bool) -> Comparison:
    return rebuild(folder, checkpoint, Silent(), core_key=CORE_KEY if sealed else None)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_core_is_equal_or_made_by_tools_of_a_named_version(
    name: str, tmp_path: Path
) -> None:
    stored = StoredCore(name)
    sealed = stored.core_key is not None
    comparison = check(stored.folder, checkpoint_of(name, tmp_path), sealed=sealed)
    assert comparison.public_key == stored.publisher_key
    if comparison.verdict is not Verdict.OTHER_TOOLS:
        assert comparison.verdict is (Verdict.SAME_CONTENT if sealed else Verdict.SAME)
    recorded = stored.open().deployment.rebuild.tools
    for difference in comparison.differences:
        assert difference.causes
        for tool in difference.causes:
            assert comparison.tools[tool][0] == recorded.get(tool)
            assert comparison.tools[tool][1] not in (None, recorded.get(tool))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_stored_core_doesn_t_record_is_said_as_such(name: str, tmp_path: Path) -> None:
    stored = StoredCore(name)
    key = stored.key_file(tmp_path)
    options = ["--core-key", key] if key else []
    status, output = run(stored.folder, checkpoint_of(name, tmp_path), "--check", *options)
    assert status in ((4, 3) if key else (0, 3))
    assert "options" not in output
    if "generator" in stored.open().deployment.rebuild.tools:
        assert "the core doesn't record it" not in output
        return
    assert "tool: generator: the core doesn't record it, ignition " in output
    assert "tool: helios-serve: the core records 'not installed', Ignition no longer does" in output
    if key:
        assert "not compared: the carrier: index version 4 is read by this Ignition" in output
        assert "not compared: the stored bytes of 5 resources" in output


def _resealed(folder: Path, resource: str) -> Path:
    """The sealed core with one byte of one resource changed, sealed and signed again."""
    stored, payload = StoredCore("index-4"), StoredCore("payload-2")
    core = stored.open()
    contents = {r.id: core.read_resource(r.id, r.kind) for r in core.decoded.executables.values()}
    for name in core.decoded.weights:
        mapped = core.map_weights(name)
        contents[name] = bytes(mapped.content)
        mapped.close()
    changed = bytearray(contents[resource])
    changed[-1] ^= 1
    contents[resource] = bytes(changed)
    envelope = core_pb2.SignedEnvelope.FromString((payload.folder / "core.pb").read_bytes())
    body = core_pb2.CoreBody.FromString(envelope.body)
    body.deployment.contract.served_id = "index-4"
    return write_index(folder, *sealed_index(body, contents))


@pytest.mark.parametrize("resource", ["template", "weights.cpu"])
def test_content_of_a_sealed_core_that_differs_is_named(
    sealed_checkpoint: Path, tmp_path: Path, resource: str
) -> None:
    comparison = check(_resealed(tmp_path / "core", resource), sealed_checkpoint, sealed=True)
    assert comparison.verdict in (Verdict.DIFFERENT, Verdict.OTHER_TOOLS)
    assert f"resource {resource!r}" in {difference.where for difference in comparison.differences}


def test_a_sealed_core_can_t_be_written_again(sealed_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(CoreError, match=r"reads index version 4 and doesn't write it.*--check"):
        rebuild(
            StoredCore("index-4").folder, sealed_checkpoint, Silent(), destination=out, key=KEY,
            core_key=CORE_KEY,
        )  # fmt: skip
    assert not out.exists()


def test_a_sealed_core_is_compared_with_its_key_only(sealed_checkpoint: Path) -> None:
    with pytest.raises(CoreError, match=r"no core key was given.*--core-key"):
        check(StoredCore("index-4").folder, sealed_checkpoint, sealed=False)


def test_a_damaged_sealed_core_is_no_match(sealed_checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(StoredCore("index-4").folder, tmp_path / "core"))
    core = open_core(folder, accept="tests", publisher_key=PUBLIC_KEY, core_key=CORE_KEY)
    resource = core.decoded.weights["weights.cpu"]
    assert isinstance(resource, SealedResource)
    path = folder / "resources" / resource.content_name
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(CoreError, match=r"weights\.cpu.*not what was signed"):
        check(folder, sealed_checkpoint, sealed=True)
