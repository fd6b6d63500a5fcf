"""What is remembered of mirrors from one resource to the next, and which one is asked when."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from helios.core import OpenedCore, ResourceKind
from helios.core.addresses import Endpoints
from helios.core.fetch import Fetcher
from helios.core.format import LOCATIONS_FILE
from helios.core.mirror import MirrorClient
from helios.core.mirror_choice import MirrorRecord, ResourceMirrors
from helios.core.pinned_network import PinnedNetwork
from helios.core.resources import WeightResource
from helios.errors import CoreError
from helios.schema import core_pb2 as pb
from tests.core.mirror_server import Clock, MirrorServer, serving
from tests.core.sample_core import CONTENT, WEIGHTS, write_core
from tests.core.test_mirrors import (
    BRIEF,
    BY_NAME,
    LONG,
    PATIENCE,
    local_only,
    opened,
    url,
    write_long_core,
)


@pytest.fixture
def server() -> Iterator[MirrorServer]:
    with serving(BY_NAME) as running:
        yield running


@pytest.fixture
def bad() -> Iterator[MirrorServer]:
    """Another mirror, for what goes wrong."""
    with serving(BY_NAME) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_core(tmp_path / "core")
    shutil.rmtree(folder / "resources")
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that were asked for, in order; connections that fail never reach a server."""
    urls: list[str] = []
    read_range = MirrorClient.read_range

    def watched(client: MirrorClient, url: str, *given: int, brisk: bool = False) -> bytes:
        urls.append(url)
        return read_range(client, url, *given, brisk=brisk)

    monkeypatch.setattr(MirrorClient, "read_range", watched)
    return urls


def locate_all(folder: Path, uris: dict[str, list[str]]) -> None:
    message = pb.LocationSet(
        locations=[pb.Location(resource=name, uris=found) for name, found in uris.items()]
    )
    (folder / LOCATIONS_FILE).write_bytes(message.SerializeToString())


def read(core: OpenedCore, name: str) -> bytes:
    return core.read_resource(name, ResourceKind(CONTENT[name][0]))


FAILING = ["stalls", "silent", "lies", "truncates", "no-http", "broken", "encoded", "to-private"]


@pytest.mark.parametrize("behaviour", [*FAILING, "gone"])
def test_a_mirror_that_failed_comes_last_for_what_follows(
    folder: Path, server: MirrorServer, bad: MirrorServer, asked: list[str], behaviour: str
) -> None:
    def wrong(name: str) -> str:
        if behaviour == "to-private":
            return f"{bad.url}/redirects/{quote(f'http://127.0.0.2/{name}', safe='')}"
        return url(bad, "good" if behaviour == "gone" else behaviour, name)

    if behaviour == "gone":
        bad.shutdown()
        bad.server_close()
    locate_all(folder, {name: [wrong(name), url(server, "good", name)] for name in CONTENT})
    patience = BRIEF if behaviour in ("stalls", "silent") else PATIENCE
    core = opened(folder, patience=patience)
    for name, (_, content) in CONTENT.items():
        assert read(core, name) == content
    first, *others = CONTENT
    assert asked[0] == wrong(first)
    assert {u for u in asked if u.startswith(bad.url)} == {wrong(first)}
    assert asked[-len(others) :] == [url(server, "good", name) for name in others]
    # Another opening knows nothing of it.
    asked.clear()
    shutil.rmtree(folder.parent / "cache")
    read(opened(folder, patience=patience), first)
    assert asked[0] == wrong(first)


@pytest.mark.parametrize("behaviour", ["missing", "unsatisfiable", "other-total"])
def test_a_mirror_that_lacks_one_file_stays_where_it_was(
    folder: Path, server: MirrorServer, bad: MirrorServer, asked: list[str], behaviour: str
) -> None:
    locate_all(
        folder,
        {
            "manifest": [url(bad, behaviour, "manifest"), url(server, "good", "manifest")],
            "template": [url(bad, "good", "template"), url(server, "good", "template")],
        },
    )
    core = opened(folder)
    assert read(core, "manifest") == CONTENT["manifest"][1]
    assert read(core, "template") == CONTENT["template"][1]
    assert asked[-1] == url(bad, "good", "template")


def test_a_mirror_that_failed_is_asked_where_no_other_has_it_and_each_is_named(
    folder: Path, server: MirrorServer, bad: MirrorServer
) -> None:
    locate_all(
        folder,
        {
            "manifest": [url(bad, "lies", "manifest"), url(server, "good", "manifest")],
            "template": [url(bad, "good", "template"), url(server, "missing", "template")],
            "oracle": [url(bad, "broken", "oracle"), url(server, "missing", "oracle")],
        },
    )
    core = opened(folder)
    for name in ("manifest", "template"):
        assert read(core, name) == CONTENT[name][1]
    with pytest.raises(CoreError) as failed:
        read(core, "oracle")
    assert f"{url(bad, 'broken', 'oracle')}: answers with status 500, 2 times" in str(failed.value)
    assert f"{url(server, 'missing', 'oracle')}: answers with status 404" in str(failed.value)


def test_of_one_host_the_folder_that_failed_comes_last(
    folder: Path, server: MirrorServer, asked: list[str]
) -> None:
    names = ("manifest", "template")
    locate_all(
        folder, {name: [url(server, kind, name) for kind in ("lies", "good")] for name in names}
    )
    core = opened(folder)
    for name in names:
        assert read(core, name) == CONTENT[name][1]
    assert asked[-1] == url(server, "good", "template")
    assert url(server, "lies", "template") not in asked


@pytest.fixture
def long_folder(tmp_path: Path, server: MirrorServer, bad: MirrorServer) -> Path:
    return write_long_core(tmp_path / "long", server, bad)


def test_a_slow_mirror_is_left_for_another_and_taken_where_none_is_left(
    long_folder: Path, server: MirrorServer, bad: MirrorServer, asked: list[str]
) -> None:
    slow, missing = f"{bad.url}/slow-once/long", f"{server.url}/missing/long"
    locate_all(long_folder, {"oracle": [slow, missing]})
    core = opened(long_folder, clock=bad.clock)
    assert core.find_resource("oracle").read_bytes() == LONG
    assert asked == [slow, missing, slow]


def test_a_slow_mirror_that_is_the_only_one_is_asked_again(
    long_folder: Path, bad: MirrorServer, asked: list[str]
) -> None:
    only = f"{bad.url}/slow-once/long"
    locate_all(long_folder, {"oracle": [only]})
    core = opened(long_folder, clock=bad.clock)
    assert core.find_resource("oracle").read_bytes() == LONG
    assert asked == [only, only]


def test_a_mirror_must_be_brisker_where_another_could_be(
    long_folder: Path,
    server: MirrorServer,
    bad: MirrorServer,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, advance = Clock(), PinnedNetwork.advance

    def paced(network: PinnedNetwork, nbytes: int) -> None:
        clock.now += nbytes / (64 << 10)
        advance(network, nbytes)

    monkeypatch.setattr(PinnedNetwork, "advance", paced)
    first, second = (f"{mirror.url}/good/long" for mirror in (bad, server))
    locate_all(long_folder, {"oracle": [first]})
    core = opened(long_folder, clock=clock)
    assert core.find_resource("oracle").read_bytes() == LONG
    assert asked == [first]
    shutil.rmtree(long_folder.parent / "cache")
    asked.clear()
    locate_all(long_folder, {"oracle": [first, second]})
    core = opened(long_folder, clock=clock)
    assert core.find_resource("oracle").read_bytes() == LONG
    assert asked == [first, second]


def test_mirrors_are_chosen_by_what_became_of_them() -> None:
    record = MirrorRecord()
    a, b, c = "http://a/x/1", "http://b/x/1", "HTTP://A/y/1"
    mirrors = ResourceMirrors([a, b, c], record)
    assert mirrors.choose() == (a, True)
    mirrors.put_last(a)
    assert mirrors.choose() == (b, False)  # c is of the same host as a
    mirrors.drop(b, "gone", of_file=True)
    assert mirrors.choose() == (c, False)
    mirrors.drop(c, "lies", of_file=False)
    mirrors.drop(c, "and more", of_file=False)
    assert mirrors.choose() == (a, False)
    assert ResourceMirrors(["http://a/z/2", "http://b/x/2"], record).choose() == (
        "http://b/x/2",
        False,
    )
    mirrors.drop(a, "stalls", of_file=False)
    assert mirrors.choose() is None
    assert mirrors.reasons() == [f"{a}: stalls", f"{b}: gone", f"{c}: lies"]


def test_an_error_in_one_thread_ends_the_others(
    tmp_path: Path, folder: Path, server: MirrorServer, bad: MirrorServer
) -> None:
    """Here the first chunk would drip for days, and the second can't be written."""
    core = opened(folder)
    content = core.decoded.weights["weights"]
    assert isinstance(content, WeightResource)
    readable = os.open(folder / "core.pb", os.O_RDONLY)
    fetcher = Fetcher(
        allow_private=False,
        patience=PATIENCE,
        endpoints=Endpoints(is_public=local_only),
        clock=Clock(),  # stands still: nothing is ever too slow
    )
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            fetcher.fetch(content, [url(server, "drips-first", "weights")], readable, [0, 1])
    finally:
        os.close(readable)
    # That is no fault of the mirror's.
    assert fetcher._record.rank(server.url) == 0


def test_the_weights_come_from_the_mirror_that_serves(
    folder: Path, server: MirrorServer, bad: MirrorServer
) -> None:
    """Several threads find out about the bad one at once."""
    locate_all(
        folder, {"weights": [url(bad, "truncates", "weights"), url(server, "good", "weights")]}
    )
    mapped = opened(folder).map_weights("weights")
    assert mapped.content == WEIGHTS
    mapped.close()
    assert len(server.requests) == 3
