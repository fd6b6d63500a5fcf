"""The location set says where bytes are and is never believed about what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.core import ResourceKind, open_core
from helios.core import format as core_format
from helios.core.weights import map_file
from helios.errors import CoreError
from helios.schema import core_pb2 as pb
from tests.core.sample_core import (
    CONTENT,
    NAMESPACE,
    WEIGHTS,
    content_names,
    sample_body,
    write_core,
)

NAMES = content_names(sample_body()[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_core(tmp_path / "core")


def _locate(folder: Path, resource: str, *uris: str) -> None:
    message = pb.LocationSet(locations=[pb.Location(resource=resource, uris=uris)])
    (folder / core_format.LOCATIONS_FILE).write_bytes(message.SerializeToString())


def _template(folder: Path) -> bytes:
    core = open_core(folder, accept=NAMESPACE)
    return core.read_resource("template", ResourceKind.CHAT_TEMPLATE)


def _move(folder: Path, resource: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    (folder / core_format.RESOURCE_FOLDER / NAMES[resource]).rename(target)


@pytest.mark.clause("CORE-3")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_location_set_never_yields_wrong_content(
    folder: Path, data: st.DataObject
) -> None:
    good = pb.LocationSet(
        locations=[
            pb.Location(resource=r, uris=[core_format.resource_uri(n)]) for r, n in NAMES.items()
        ]
    ).SerializeToString()
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    (folder / core_format.LOCATIONS_FILE).write_bytes(damaged)
    core = open_core(folder, accept=NAMESPACE)
    for name, (kind, content) in CONTENT.items():
        assert core.read_resource(name, ResourceKind(kind)) == content


@pytest.mark.clause("CORE-3")
def test_locations_of_other_resources_yield_the_right_content(folder: Path) -> None:
    names = list(NAMES)
    message = pb.LocationSet(
        locations=[
            pb.Location(resource=r, uris=[core_format.resource_uri(NAMES[names[i - 1]])])
            for i, r in enumerate(names)
        ]
    )
    (folder / core_format.LOCATIONS_FILE).write_bytes(message.SerializeToString())
    core = open_core(folder, accept=NAMESPACE)
    for name, (kind, content) in CONTENT.items():
        assert core.read_resource(name, ResourceKind(kind)) == content
    for verify in (True, False):
        mapped = core.map_weights("weights", verify=verify)
        assert mapped.content == WEIGHTS
        mapped.close()


def test_unverified_weights_come_only_from_a_file_of_their_content_name(folder: Path) -> None:
    (folder / "other").write_bytes(bytes(len(WEIGHTS)))
    _locate(folder, "weights", "file:other")
    mapped = open_core(folder, accept=NAMESPACE).map_weights("weights", verify=False)
    assert mapped.content == WEIGHTS
    mapped.close()


def test_weights_that_were_checked_are_mapped_from_the_file_that_was_checked(folder: Path) -> None:
    path = folder / core_format.RESOURCE_FOLDER / NAMES["weights"]
    (folder / "copy").write_bytes(WEIGHTS)
    path.write_bytes(bytes(len(WEIGHTS)))  # has the right name and length
    _locate(folder, "weights", "file:copy", core_format.resource_uri(path.name))
    core = open_core(folder, accept=NAMESPACE)
    assert core.check_resource("weights", lambda nbytes: None) == folder / "copy"
    mapped = core.map_weights("weights", verify=False)
    assert mapped.content == WEIGHTS
    mapped.close()


@pytest.mark.parametrize("kind", ["missing", "empty", "text", "oversized"])
def test_without_a_location_set_the_resource_folder_serves(folder: Path, kind: str) -> None:
    path = folder / core_format.LOCATIONS_FILE
    path.unlink()
    if kind == "oversized":
        with path.open("wb") as file:
            file.truncate(core_format.LOCATIONS_LIMIT_NBYTES + 1)
    elif kind != "missing":
        path.write_bytes(b"" if kind == "empty" else b"not a message")
    assert _template(folder) == CONTENT["template"][1]


def test_uris_are_tried_in_order(folder: Path) -> None:
    _move(folder, "template", folder / "deep" / "template")
    (folder / "wrong").write_bytes(b"wrong")
    _locate(folder, "template", "https://host/x", "file:absent", "file:wrong", "file:deep/template")
    assert _template(folder) == CONTENT["template"][1]


def _count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    read: list[Path] = []

    def counting(path: Path, *given: Any, **named: Any) -> Any:
        read.append(path)
        return map_file(path, *given, **named)

    monkeypatch.setattr("helios.core.opened_core.map_file", counting)
    return read


def test_a_wrong_file_is_read_once_however_often_it_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = bytearray(WEIGHTS)
    wrong[0] ^= 1
    (folder / "wrong").write_bytes(wrong)
    (folder / "link").symlink_to(folder / "wrong")
    read = _count_reads(monkeypatch)
    uris = ["file:wrong", "file:./wrong", "file:link"] * 10_000
    _locate(folder, "weights", *uris)
    open_core(folder, accept=NAMESPACE).map_weights("weights").close()
    assert [path.name for path in read] == ["wrong", NAMES["weights"]]


def test_only_the_first_locations_of_a_resource_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        (folder / f"wrong{number}").write_bytes(bytes(len(WEIGHTS)))
    read = _count_reads(monkeypatch)
    uris = [f"file:wrong{number}" for number in range(40)]
    message = pb.LocationSet(locations=[pb.Location(resource="weights", uris=[u]) for u in uris])
    (folder / core_format.LOCATIONS_FILE).write_bytes(message.SerializeToString())
    open_core(folder, accept=NAMESPACE).map_weights("weights").close()
    expected = [f"wrong{number}" for number in range(core_format.LOCATION_URIS_LIMIT)]
    assert [path.name for path in read] == [*expected, NAMES["weights"]]


def test_messages_about_locations_stay_short(folder: Path) -> None:
    _move(folder, "template", folder / "elsewhere")
    _locate(folder, "template", *(f"file:{number}{'a' * 3000}" for number in range(300)))
    with pytest.raises(CoreError, match="resource 'template'") as caught:
        _template(folder)
    assert len(str(caught.value)) < 3000


ESCAPES = [
    ("file:../outside", "no path below"),
    ("file:resources/../../outside", "no path below"),
    ("file:{outside}", "no path below"),
    ("file://{outside}", "no path below"),
    ("file:", "no path below"),
    ("file:link", "leads out"),
    ("file:linked-folder/outside", "leads out"),
    ("file:bad\0name", "no path below"),
    ("s3:bucket/object", "only file:, https: and http: locations"),
    ("outside", "only file:, https: and http: locations"),
    ("file:resources", "is no regular file"),
    ("file:absent", "no such file"),
]


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize(("uri", "reason"), ESCAPES, ids=[u for u, _ in ESCAPES])
def test_no_location_leaves_the_cores_folder(folder: Path, uri: str, reason: str) -> None:
    outside = folder.parent / "outside"
    _move(folder, "template", outside)
    (folder / "link").symlink_to(outside)
    (folder / "linked-folder").symlink_to(folder.parent)
    _locate(folder, "template", uri.format(outside=outside))
    with pytest.raises(CoreError, match=f"resource 'template'.*{reason}"):
        _template(folder)


def test_a_symlink_inside_the_folder_is_followed(folder: Path) -> None:
    _move(folder, "template", folder / "elsewhere")
    (folder / core_format.RESOURCE_FOLDER / NAMES["template"]).symlink_to(folder / "elsewhere")
    assert _template(folder) == CONTENT["template"][1]


def test_a_core_behind_a_symlinked_folder_opens(folder: Path) -> None:
    link = folder.parent / "by-link"
    link.symlink_to(folder)
    assert _template(link) == CONTENT["template"][1]
