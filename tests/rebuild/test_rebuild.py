"""Preparing a core again: equal bytes, or each difference by name and with its cause."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typer.testing import CliRunner

from helios.core import ResourceKind, open_core
from helios.core.format import ZSTD_LEVEL
from helios.errors import CoreError
from helios.schema import core_pb2, execution_pb2
from ignition.cli import main
from ignition.preparation import signing
from ignition.preparation.checkpoints.checkpoint import GenerationDefaults
from ignition.preparation.comparison import Comparison, Verdict
from ignition.preparation.differences import message_differences
from ignition.preparation.errors import CheckpointError
from ignition.preparation.export import Carrier
from ignition.preparation.prepare import prepare
from ignition.preparation.rebuild import rebuild
from ignition.preparation.serving import tool_versions
from tests.rebuild.altered import KEY, PUBLIC_KEY, altered, replace_frame, replace_weights
from tests.rebuild.conftest import OPTIONS
from tests.silence import Silent


def check(core: Path, checkpoint: Path) -> Comparison:
    return rebuild(core, checkpoint, Silent())


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("carrier", list(Carrier))
def test_a_core_is_made_again_byte_for_byte(
    cores: dict[Carrier, Path], checkpoint: Path, tmp_path: Path, carrier: Carrier
) -> None:
    again = tmp_path / "again"
    comparison = rebuild(cores[carrier], checkpoint, Silent(), destination=again, key=KEY)
    assert comparison == Comparison(PUBLIC_KEY, {}, ())
    assert comparison.verdict is Verdict.SAME
    assert files(again) == files(cores[carrier])


def test_a_check_leaves_nothing_and_needs_no_key(core: Path, checkpoint: Path) -> None:
    before = files(core.parent)
    assert check(core, checkpoint).verdict is Verdict.SAME
    assert files(core.parent) == before


def test_recommendations_are_recorded_and_rebuilt(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    options = replace(OPTIONS, sampling=GenerationDefaults(temperature=0.2, top_k=7))
    prepare(checkpoint, tmp_path / "core", options, KEY, Silent())
    plain, recommending = (
        open_core(folder, accept="tests", publisher_key=PUBLIC_KEY).deployment.rebuild.options
        for folder in (core, tmp_path / "core")
    )
    assert "sampling" not in plain
    assert recommending["sampling"] == "temperature=0.2,top_k=7"
    assert check(tmp_path / "core", checkpoint).verdict is Verdict.SAME


def test_the_tools_are_recorded(core: Path) -> None:
    tools = open_core(core, accept="tests", publisher_key=PUBLIC_KEY).deployment.rebuild.tools
    assert tools == tool_versions()
    version = ".".join(map(str, zstandard.ZSTD_VERSION))
    assert tools["compressor"] == f"zstd {version}"
    assert tools["generator"].startswith("ignition ")
    assert tools["compiler"] == "none"


@pytest.mark.clause("CORE-4")
@pytest.mark.parametrize("carrier", list(Carrier))
def test_frames_are_level_3_of_the_recorded_compressor(
    cores: dict[Carrier, Path], carrier: Carrier
) -> None:
    core = open_core(cores[carrier], accept="tests", publisher_key=PUBLIC_KEY)
    recorded = core.deployment.rebuild.tools["compressor"]
    assert recorded == f"zstd {'.'.join(map(str, zstandard.ZSTD_VERSION))}"
    for resource in core.decoded.executables.values():
        content = core.read_resource(resource.id, resource.kind)
        stored = (cores[carrier] / "resources" / resource.content_name).read_bytes()
        assert zstandard.ZstdCompressor(level=3).compress(content) == stored
        others = {zstandard.ZstdCompressor(level=n).compress(content) for n in (1, 2, 4, 6)}
        if resource.kind is ResourceKind.EXECUTION_MANIFEST:
            assert stored not in others  # or this test would say nothing
    assert ZSTD_LEVEL == 3


Change = Callable[[Any, Any], object]
FIELDS: list[tuple[str, str, Change]] = [
    ("deployment.contract.cache_pages", "rebuilt as", lambda b, d: _more_pages(d)),
    (
        "deployment.contract.model.graphs[1].bindings[2].padding",
        "7, rebuilt as 0",
        lambda b, d: setattr(d.contract.model.graphs[1].bindings[2], "padding", 7),
    ),
    (
        "deployment.contract.defaults.sampling.top_k",
        "present, rebuilt absent",
        lambda b, d: setattr(d.contract.defaults.sampling, "top_k", 5),
    ),
    (
        "deployment.targets[0].ranks[0].weight_catalog.views[0].tensor",
        "'other', rebuilt as",
        lambda b, d: setattr(d.targets[0].ranks[0].weight_catalog.views[0], "tensor", "other"),
    ),
    ("deployment.template_resource", "'', rebuilt as 'template'", lambda b, d: _no_template(b, d)),
    ("resource 'template'", "is made now and wasn't there", lambda b, d: _no_template(b, d)),
    ("deployment.contract.cache_identity", "'mine', rebuilt as", lambda b, d: _renamed(d)),
    ("resources", "are in the order ['", lambda b, d: _reordered(b)),
]


def _reordered(body: Any) -> None:
    resources = list(reversed(body.executable_resources))
    del body.executable_resources[:]
    body.executable_resources.extend(resources)


def _more_pages(deployment: Any) -> None:
    deployment.contract.cache_pages += 1


def _renamed(deployment: Any) -> None:
    deployment.contract.cache_identity = "mine"


def _no_template(body: Any, deployment: Any) -> None:
    deployment.template_resource = ""
    kept = [r for r in body.executable_resources if r.id != "template"]
    del body.executable_resources[:]
    body.executable_resources.extend(kept)


@pytest.mark.parametrize(("where", "what", "change"), FIELDS, ids=[w for w, _, _ in FIELDS])
def test_a_field_that_differs_is_named(
    core: Path, checkpoint: Path, tmp_path: Path, where: str, what: str, change: Change
) -> None:
    comparison = check(altered(core, tmp_path / "core", change), checkpoint)
    assert comparison.verdict is Verdict.DIFFERENT
    found = {difference.where: difference for difference in comparison.differences}
    assert what in found[where].what
    assert not found[where].causes


def test_another_spelling_of_the_same_message_is_told(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    folder = altered(core, tmp_path / "core", lambda b, d: None)
    path = folder / "core.pb"
    body = core_pb2.SignedEnvelope.FromString(path.read_bytes()).body
    respelled = signing.sign(body + b"\x08\x02", KEY)  # the format version, a second time
    path.write_bytes(respelled.SerializeToString())
    comparison = check(folder, checkpoint)
    assert [difference.where for difference in comparison.differences] == ["the signed message"]
    assert comparison.verdict is Verdict.DIFFERENT


def test_weights_that_differ_are_named_by_buffer(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    manifest = execution_pb2.ExecutionManifest.FromString(
        open_core(core, accept="tests", publisher_key=PUBLIC_KEY).read_resource(
            "manifest.cpu", ResourceKind.EXECUTION_MANIFEST
        )
    )
    weights = [buffer for buffer in manifest.buffers if buffer.resource]
    folder = tmp_path / "core"

    def change(body: Any, deployment: Any) -> None:
        resource = body.weight_resources[0]
        path = folder / "resources" / _name(resource)
        content = bytearray(path.read_bytes())
        content[weights[1].offset + weights[1].nbytes - 1] ^= 1
        replace_weights(resource, folder, bytes(content))

    altered(core, folder, change)
    (difference,) = check(folder, checkpoint).differences
    assert difference.where == "resource 'weights.cpu'"
    assert difference.what == f"differs in {weights[1].name}"


def _name(resource: core_pb2.WeightResource) -> str:
    from helios.core.format import weight_content_name

    return weight_content_name(resource.chunk_sha256)


def _recompressed(core: Path, folder: Path, compressor: str | None) -> Path:
    """A core whose manifest was compressed in another way, perhaps by a recorded other tool."""

    def change(body: Any, deployment: Any) -> None:
        opened = open_core(core, accept="tests", publisher_key=PUBLIC_KEY)
        content = opened.read_resource("manifest.cpu", ResourceKind.EXECUTION_MANIFEST)
        (resource,) = (r for r in body.executable_resources if r.id == "manifest.cpu")
        replace_frame(resource, folder, zstandard.ZstdCompressor(level=19).compress(content))
        if compressor is not None:
            deployment.rebuild.tools["compressor"] = compressor

    return altered(core, folder, change)


def test_another_compressor_explains_other_compressed_bytes(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    comparison = check(_recompressed(core, tmp_path / "core", "zstd 1.4.0"), checkpoint)
    assert comparison.verdict is Verdict.OTHER_TOOLS
    assert comparison.tools["compressor"][0] == "zstd 1.4.0"
    (difference,) = comparison.differences
    assert difference.where == "resource 'manifest.cpu'"
    assert "another compressor" in difference.what
    assert difference.causes == ("compressor",)


def test_the_same_compressor_explains_nothing(core: Path, checkpoint: Path, tmp_path: Path) -> None:
    comparison = check(_recompressed(core, tmp_path / "core", None), checkpoint)
    assert comparison.verdict is Verdict.DIFFERENT
    assert "no other compressor is recorded" in comparison.differences[0].what


def test_a_compressor_that_isn_t_recorded_explains_nothing(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    recompressed = _recompressed(core, tmp_path / "recompressed", None)

    def forget(body: Any, deployment: Any) -> None:
        del deployment.rebuild.tools["compressor"]

    comparison = check(altered(recompressed, tmp_path / "core", forget), checkpoint)
    assert comparison.tools["compressor"][0] is None
    assert comparison.verdict is Verdict.DIFFERENT


def test_a_compressor_explains_no_other_content(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    def change(body: Any, deployment: Any) -> None:
        deployment.rebuild.tools["compressor"] = "zstd 1.4.0"
        _more_pages(deployment)

    comparison = check(altered(core, tmp_path / "core", change), checkpoint)
    assert comparison.verdict is Verdict.DIFFERENT


def test_other_tools_that_change_nothing_are_told_and_no_difference(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    def change(body: Any, deployment: Any) -> None:
        deployment.rebuild.tools["numpy"] = "0.1"
        del deployment.rebuild.tools["compiler"]

    comparison = check(altered(core, tmp_path / "core", change), checkpoint)
    assert comparison.verdict is Verdict.SAME
    assert comparison.tools.keys() == {"numpy", "compiler"}
    assert comparison.tools["compiler"] == (None, "none")


def test_other_content_under_other_tools_is_told_as_such(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    def change(body: Any, deployment: Any) -> None:
        deployment.rebuild.tools["generator"] = "ignition 0.0.1"
        _more_pages(deployment)

    comparison = check(altered(core, tmp_path / "core", change), checkpoint)
    assert comparison.verdict is Verdict.OTHER_TOOLS
    assert {difference.causes for difference in comparison.differences} == {("generator",)}


@pytest.mark.parametrize(
    "recorded",
    [{}, {"sampling": "", "tuning": "off"}],
    ids=["before they were options", "spelled out"],
)
def test_options_that_nobody_gave_had_their_defaults(
    core: Path, checkpoint: Path, tmp_path: Path, recorded: dict[str, str]
) -> None:
    def change(body: Any, deployment: Any) -> None:
        for name in ("sampling", "tuning"):
            assert name not in deployment.rebuild.options
        deployment.rebuild.options.update(recorded)

    comparison = check(altered(core, tmp_path / "core", change), checkpoint)
    assert comparison.verdict is Verdict.SAME


def test_an_option_that_was_given_is_no_default(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """The core says that it was made with tuning; what it holds was made without."""

    def change(body: Any, deployment: Any) -> None:
        deployment.rebuild.options["tuning"] = "on"

    comparison = check(altered(core, tmp_path / "core", change), checkpoint)
    assert comparison.verdict is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("has no rebuild manifest", lambda b, d: d.ClearField("rebuild")),
        ("version 2 is not supported", lambda b, d: setattr(d.rebuild, "version", 2)),
        (
            r"options that this Ignition doesn't know: fresh\. Rebuild it with ignition \d",
            lambda b, d: d.rebuild.options.update(fresh="1"),
        ),
        (
            r"doesn't record: decode\. It can't be rebuilt",
            lambda b, d: d.rebuild.options.pop("decode"),
        ),
        ("is damaged", lambda b, d: d.rebuild.options.update(tuning="maybe")),
        ("is damaged", lambda b, d: d.rebuild.options.update(prefill="8,x")),
        ("is damaged", lambda b, d: d.rebuild.options.update(storage="int3")),
    ],
)
def test_a_core_that_doesn_t_say_how_it_was_made_is_refused(
    core: Path, checkpoint: Path, tmp_path: Path, said: str, change: Change
) -> None:
    with pytest.raises(CoreError, match=said):
        check(altered(core, tmp_path / "core", change), checkpoint)


def test_the_signature_is_verified(core: Path, checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(core, tmp_path / "core"))
    path = folder / "core.pb"
    envelope = core_pb2.SignedEnvelope.FromString(path.read_bytes())
    envelope.signature = envelope.signature[:-1] + bytes([envelope.signature[-1] ^ 1])
    path.write_bytes(envelope.SerializeToString())
    with pytest.raises(CoreError, match="signature doesn't belong"):
        check(folder, checkpoint)


@pytest.mark.parametrize("resource", ["tokenizer", "weights.cpu"])
def test_damaged_resources_are_no_match(
    core: Path, checkpoint: Path, tmp_path: Path, resource: str
) -> None:
    folder = Path(shutil.copytree(core, tmp_path / "core"))
    opened = open_core(core, accept="tests", publisher_key=PUBLIC_KEY)
    listed = {**opened.decoded.executables, **opened.decoded.weights}
    path = folder / "resources" / listed[resource].content_name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CoreError, match=rf"{resource}.*not what was signed"):
        check(folder, checkpoint)


def test_another_checkpoint_is_refused_by_file(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(checkpoint, tmp_path / "other"))
    configuration = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(configuration | {"_note": "changed"}))
    with pytest.raises(CheckpointError, match=r"config\.json differs from the file"):
        check(core, other)
    shutil.copy(checkpoint / "config.json", other / "config.json")
    assert check(core, other).verdict is Verdict.SAME
    (other / "generation_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"generation_config\.json is missing"):
        check(core, other)


def run(*arguments: object) -> tuple[int, str]:
    from ignition.cli import app

    ended = CliRunner().invoke(app, ["rebuild", *map(str, arguments)])
    return ended.exit_code, ended.output


def test_the_command_reports_and_has_a_status_for_each_verdict(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    status, output = run(core, checkpoint, "--check")
    assert status == 0
    assert f"signature: valid, by the key {PUBLIC_KEY.hex()}" in output
    assert output.strip().endswith("the same but for the signature")
    other = altered(core, tmp_path / "other", lambda b, d: _more_pages(d))
    status, output = run(other, checkpoint, "--check")
    assert status == 1
    assert "differs: deployment.contract.cache_pages: " in output
    recompressed = _recompressed(core, tmp_path / "recompressed", "zstd 1.4.0")
    status, output = run(recompressed, checkpoint, "--check")
    assert status == 3
    assert "tool: compressor: zstd 1.4.0 made the core, zstd " in output
    assert "other tools (compressor zstd 1.4.0, now zstd " in output
    assert "): resource 'manifest.cpu': the same content" in output


def test_the_command_writes_the_new_core_signed_with_the_key(
    core: Path, checkpoint: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    signing.generate(key)
    status, _ = run(core, checkpoint, tmp_path / "again", "--key", key)
    assert status == 0
    public = signing.read_private_key(key).public_key().public_bytes_raw()
    assert open_core(tmp_path / "again", accept="tests", publisher_key=public).contract.aliases


@pytest.mark.parametrize("arguments", [(), ("{out}",), ("--key", "{key}"), ("{out}", "--check")])
def test_half_of_the_options_is_refused(
    core: Path, checkpoint: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    places = {"out": tmp_path / "out", "key": tmp_path / "key"}
    status, output = run(core, checkpoint, *(a.format_map(places) for a in arguments))
    assert status == 2
    assert "Traceback" not in output


def test_what_can_t_be_rebuilt_is_said_in_one_line(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rebuild", str(tmp_path / "nothing"), str(checkpoint), "--check"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("ignition: ")


def test_every_kind_of_field_is_compared() -> None:
    old = core_pb2.CoreBody(format_version=2)
    new = core_pb2.CoreBody(format_version=3)
    new.deployment.rebuild.options["a"] = "b"
    new.deployment.targets.add(name="cpu")
    found = dict(message_differences(old, new))
    assert found == {
        "format_version": "2, rebuilt as 3",
        "deployment": "absent, rebuilt present",
    }
    old.deployment.rebuild.options["c"] = "d"
    found = dict(message_differences(old.deployment, new.deployment))
    assert found == {
        "targets": "0 entries, rebuilt as 1",
        "rebuild.options['a']": "None, rebuilt as 'b'",
        "rebuild.options['c']": "'d', rebuilt as None",
    }
