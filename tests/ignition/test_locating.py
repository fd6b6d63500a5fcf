"""`ignition locate`: a location set that Helios can follow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helios.core import ResourceKind, open_core
from helios.core.cache import ResourceCache
from helios.core.format import LOCATION_URIS_LIMIT
from helios.errors import CoreError
from ignition.cli import main
from ignition.preparation.locating import locate
from tests.core.mirror_server import serving
from tests.core.sample_core import CONTENT, NAMESPACE, WEIGHTS, write_core


def test_a_core_whose_files_moved_to_a_mirror_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_core(tmp_path / "core")
    files = {path.name: path.read_bytes() for path in (folder / "resources").iterdir()}
    with serving(files) as server:
        with pytest.raises(SystemExit) as ended:
            main(["locate", str(folder), "--mirror", f"{server.url}/good/"])
        assert ended.value.code == 0
        assert not server.requests
        assert "no mirror was asked whether it has them" in capsys.readouterr().err
        shutil.rmtree(folder / "resources")
        cache = ResourceCache(tmp_path / "cache", allow_private_mirrors=True)
        core = open_core(folder, accept=NAMESPACE, cache=cache)
        for name, (kind, content) in CONTENT.items():
            assert core.read_resource(name, ResourceKind(kind)) == content
        mapped = core.map_weights("weights")
        assert mapped.content == WEIGHTS
        mapped.close()


def test_the_cores_own_files_come_first_and_a_set_without_mirrors_is_as_written(
    tmp_path: Path,
) -> None:
    folder = write_core(tmp_path / "core")
    written = (folder / "locations.pb").read_bytes()
    assert locate(folder, ["https://host.test/a"]) == len(CONTENT) + 1
    assert (folder / "locations.pb").read_bytes() != written
    locate(folder, [])
    assert (folder / "locations.pb").read_bytes() == written
    assert sorted(p.name for p in folder.iterdir()) == ["core.pb", "locations.pb", "resources"]


@pytest.mark.parametrize(
    "mirror",
    ["host/path", "ftp://host/x", "https://", "https://u@host/x", "https://h/x?q", "http://[::/"],
)
def test_a_mirror_is_a_url_of_a_folder(tmp_path: Path, mirror: str) -> None:
    folder = write_core(tmp_path / "core")
    with pytest.raises(CoreError, match="is no URL of a folder"):
        locate(folder, [mirror])


def test_a_refused_mirror_gives_away_no_password(tmp_path: Path) -> None:
    folder = write_core(tmp_path / "core")
    for mirror in ("https://user:hunter2@host/x", "https://host/x?signature=hunter2"):
        with pytest.raises(CoreError, match=r"https://.*host.* is no URL of a folder") as refused:
            locate(folder, [mirror])
        assert "hunter2" not in str(refused.value)


def test_more_mirrors_than_helios_tries_are_refused(tmp_path: Path) -> None:
    folder = write_core(tmp_path / "core")
    mirrors = [f"https://host-{number}.test" for number in range(LOCATION_URIS_LIMIT)]
    locate(folder, mirrors[1:])
    with pytest.raises(CoreError, match=f"more than {LOCATION_URIS_LIMIT - 1} mirrors"):
        locate(folder, mirrors)
