"""A core whose resources are elsewhere: every command gets them, once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helios.core import format as core_format
from helios.schema import core_pb2 as pb
from tests.core.mirror_server import MirrorServer, serving
from tests.server.real import NAMESPACE, run_cli, server_process


@pytest.fixture
def mirror(core_folder: Path) -> Iterator[MirrorServer]:
    """Serves the core's resource files."""
    folder = core_folder / core_format.RESOURCE_FOLDER
    with serving({path.name: path.read_bytes() for path in folder.iterdir()}) as server:
        yield server


@pytest.fixture
def light_core(core_folder: Path, mirror: MirrorServer, tmp_path: Path) -> Path:
    """The core without its resources, whose location set names the mirror."""
    light = tmp_path / "light"
    light.mkdir()
    shutil.copy(core_folder / core_format.ENVELOPE_FILE, light)
    locations = pb.LocationSet()
    locations.ParseFromString((core_folder / core_format.LOCATIONS_FILE).read_bytes())
    for location in locations.locations:
        name = location.uris[0].rpartition("/")[2]
        location.uris[:] = [f"{mirror.url}/good/{name}"]
    (light / core_format.LOCATIONS_FILE).write_bytes(locations.SerializeToString())
    return light


@pytest.mark.clause("CORE-3")
def test_commands_fetch_what_the_folder_lacks_and_keep_it(
    light_core: Path, mirror: MirrorServer, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    places = ("--cache-dir", cache, "--allow-private-mirrors", "--mirror-timeout", "60")
    verify = ("verify", light_core, "--accept", NAMESPACE)
    refused = run_cli(*verify, "--cache-dir", cache)
    assert refused.returncode == 2
    assert "--allow-private-mirrors" in refused.stderr
    assert mirror.requests == []
    verified = run_cli(*verify, *places)
    assert verified.returncode == 0, verified.stderr
    assert "fetching" in verified.stderr
    fetched = len(mirror.requests)
    assert fetched == len(mirror.files)  # all of them are shorter than a chunk
    for command in (verify, ("inspect", light_core)):
        ended = run_cli(*command, *places)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
    assert len(mirror.requests) == fetched


@pytest.mark.clause("CORE-3")
def test_a_server_and_its_worker_share_what_they_fetch(
    light_core: Path, mirror: MirrorServer, tmp_path: Path
) -> None:
    options = ("--cache-dir", str(tmp_path / "cache"), "--allow-private-mirrors", "--threads", "1")
    with server_process(light_core, *options) as server:
        answer = server.http.post(
            "/v1/completions", json={"model": "tiny", "prompt": "sea", "max_tokens": 2}
        )
        assert answer.status_code == 200
    names = [name for _, name, _ in mirror.requests]
    assert len(names) == len(set(names))
