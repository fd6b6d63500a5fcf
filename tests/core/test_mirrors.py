"""Mirrors that serve well, and mirrors that do everything else."""

from __future__ import annotations

import ipaddress
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from helios.core import OpenedCore, ResourceKind, open_core
from helios.core import format as core_format
from helios.core.addresses import Address, Endpoints
from helios.core.cache import ResourceCache
from helios.core.fetch import Fetcher
from helios.core.format import LOCATION_URIS_LIMIT
from helios.core.mirror import Patience
from helios.errors import CoreError
from helios.schema import core_pb2 as pb
from tests.core.mirror_server import Clock, MirrorServer, serving
from tests.core.sample_core import (
    CONTENT,
    NAMESPACE,
    WEIGHTS,
    content_names,
    sample_body,
    write_core,
)

# Long enough for a busy machine, since nothing here has to be waited for.
PATIENCE = Patience(attempts=2, pause_s=0.0)
# For mirrors that would keep anybody waiting.
BRIEF = Patience(silence_s=1.0, attempts=1, pause_s=0.0)

BODY, FILES = sample_body()
NAMES = content_names(BODY)
BY_NAME = {NAMES[resource]: content for resource, content in FILES.items()}
TEMPLATE = CONTENT["template"][1]
# Needn't be a frame: where only the file is asked for, nobody decodes it.
LONG = bytes(range(256)) * 4096
RANGES = ["bytes=0-4194303", "bytes=4194304-8388607", "bytes=8388608-8392703"]


@pytest.fixture
def server() -> Iterator[MirrorServer]:
    with serving(BY_NAME) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A core whose folder has none of its resources."""
    folder = write_core(tmp_path / "core")
    shutil.rmtree(folder / core_format.RESOURCE_FOLDER)
    return folder


def local_only(address: Address) -> bool:
    """Takes this machine's first address for public, and no other one."""
    return address == ipaddress.ip_address("127.0.0.1")


def locate(folder: Path, resource: str, *uris: str) -> None:
    message = pb.LocationSet(locations=[pb.Location(resource=resource, uris=uris)])
    (folder / core_format.LOCATIONS_FILE).write_bytes(message.SerializeToString())


def opened(
    folder: Path,
    *,
    patience: Patience = PATIENCE,
    endpoints: Endpoints | None = None,
    clock: Clock | None = None,
) -> OpenedCore:
    """The core, with a cache of its own beside it that takes 127.0.0.1 for a public address."""
    fetcher = Fetcher(
        allow_private=False,
        patience=patience,
        endpoints=endpoints or Endpoints(is_public=local_only),
        clock=clock or time.monotonic,
    )
    cache = ResourceCache(folder.parent / "cache", fetcher=fetcher)
    return open_core(folder, accept=NAMESPACE, cache=cache)


def write_long_core(folder: Path, *servers: MirrorServer) -> Path:
    """A core whose oracle is one long chunk, `long` on the servers: longer than anybody waits for
    where it drips."""
    write_core(folder, stored={"oracle": LONG})
    shutil.rmtree(folder / core_format.RESOURCE_FOLDER)
    for server in servers:
        server.files["long"] = LONG
    return folder


def template(folder: Path, **options: object) -> bytes:
    core = opened(folder, **options)  # type: ignore[arg-type]
    return core.read_resource("template", ResourceKind.CHAT_TEMPLATE)


def weights(folder: Path, **options: object) -> bytes:
    mapped = opened(folder, **options).map_weights("weights")  # type: ignore[arg-type]
    content = bytes(mapped.content)
    mapped.close()
    return content


def url(server: MirrorServer, behaviour: str, resource: str) -> str:
    return f"{server.url}/{behaviour}/{NAMES[resource]}"


@pytest.mark.clause("CORE-3")
def test_resources_come_from_a_mirror_in_ranges_of_a_chunk(
    folder: Path, server: MirrorServer
) -> None:
    locate(folder, "weights", url(server, "good", "weights"))
    assert weights(folder) == WEIGHTS
    assert server.ranges() == RANGES
    assert weights(folder) == WEIGHTS  # from the cache
    assert len(server.requests) == 3


def test_no_mirror_is_asked_for_what_the_folder_has(tmp_path: Path, server: MirrorServer) -> None:
    folder = write_core(tmp_path / "core")
    locate(folder, "template", url(server, "good", "template"))
    assert template(folder) == TEMPLATE
    assert server.requests == []
    assert not (tmp_path / "cache").exists()


REFUSED = [
    ("lies", "chunk . is not what was signed"),
    ("truncates", "broke off .*2 times"),
    ("ends-early", r"ends after \d+ of \d+ bytes, 2 times"),
    ("endless", "sends more than was asked for"),
    ("endless-header", "broke off"),
    ("longer", "sends more than was asked for"),
    ("shifted", r"sends bytes \d+ to \d+, not \d+ to \d+"),
    ("other-total", "has 8392705 bytes, not the signed 8392704"),
    ("unsaid-range", "sends a part and doesn't say which"),
    ("whole", "sends the whole where a range was asked for"),
    ("encoded", "sends its content encoded"),
    ("no-http", "broke off"),
    ("huge-header", "broke off"),
    ("two-lengths", "broke off"),
    ("many-parts", "sends a part and doesn't say which"),
    ("empty", r"ends after 0 of \d+ bytes, 2 times"),
    ("trailers", "broke off"),
    ("missing", "answers with status 404"),
    ("unsatisfiable", "answers with status 416"),
    ("broken", "answers with status 500, 2 times"),
    ("loops", "redirects more than 5 times"),
]


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize(("behaviour", "reason"), REFUSED, ids=[b for b, _ in REFUSED])
def test_a_mirror_that_serves_wrongly_is_refused_by_name_and_survived(
    folder: Path, server: MirrorServer, behaviour: str, reason: str
) -> None:
    bad, good = url(server, behaviour, "weights"), url(server, "good", "weights")
    locate(folder, "weights", bad)
    with pytest.raises(CoreError, match=rf"'weights'.*{bad}: {reason}"):
        weights(folder)
    server.gate.clear()
    locate(folder, "weights", bad, good)
    assert weights(folder) == WEIGHTS


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize("behaviour", ["stalls", "silent"])
def test_a_mirror_that_keeps_one_waiting_is_left(
    folder: Path, server: MirrorServer, behaviour: str
) -> None:
    bad, good = url(server, behaviour, "manifest"), url(server, "good", "manifest")
    locate(folder, "manifest", bad)
    kind = ResourceKind.EXECUTION_MANIFEST
    with pytest.raises(CoreError, match=f"{bad}: didn't answer in time"):
        opened(folder, patience=BRIEF).read_resource("manifest", kind)
    locate(folder, "manifest", bad, good)
    core = opened(folder, patience=BRIEF)
    assert core.read_resource("manifest", kind) == CONTENT["manifest"][1]


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize("behaviour", ["drips", "padded", "drips-header", "hints"])
def test_a_mirror_that_hardly_sends_content_is_left(
    tmp_path: Path, server: MirrorServer, behaviour: str
) -> None:
    """It is never silent. The server turns the clock by which it is too slow."""
    folder = write_long_core(tmp_path / "long", server)
    bad, good = (f"{server.url}/{kind}/long" for kind in (behaviour, "good"))
    locate(folder, "oracle", bad)
    with pytest.raises(CoreError, match=f"{bad}: sends less than 16 KiB/s, 2 times"):
        opened(folder, clock=server.clock).find_resource("oracle")
    locate(folder, "oracle", bad, good)
    core = opened(folder, clock=server.clock)
    assert core.find_resource("oracle").read_bytes() == LONG


@pytest.mark.parametrize("behaviour", ["busy", "breaks-once"])
def test_a_mirror_that_fails_now_and_then_is_asked_again(
    folder: Path, server: MirrorServer, behaviour: str
) -> None:
    server.busy = 1
    locate(folder, "weights", url(server, behaviour, "weights"))
    assert weights(folder) == WEIGHTS
    assert len(server.requests) == (4 if behaviour == "busy" else 6)


@pytest.mark.parametrize("behaviour", ["chunked", "until-closed", "twice"])
def test_a_mirror_may_send_its_content_in_other_ways(
    folder: Path, server: MirrorServer, behaviour: str
) -> None:
    locate(folder, "weights", url(server, behaviour, "weights"), url(server, "good", "weights"))
    assert weights(folder) == WEIGHTS


def test_a_mirror_without_ranges_serves_what_is_one_range(
    folder: Path, server: MirrorServer
) -> None:
    locate(folder, "template", url(server, "whole", "template"))
    assert template(folder) == TEMPLATE


def test_a_mirror_that_nobody_runs_is_survived(folder: Path, server: MirrorServer) -> None:
    with serving({}) as gone:
        pass
    nowhere = url(gone, "good", "template")
    locate(folder, "template", nowhere)
    with pytest.raises(CoreError, match=rf"{nowhere}: can't be reached .*2 times"):
        template(folder)
    locate(folder, "template", nowhere, url(server, "good", "template"))
    assert template(folder) == TEMPLATE


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("http://", "is no URL of a host and a path"),
        ("http:///x", "is no URL of a host and a path"),
        ("http://user:secret@127.0.0.1/x", "is no URL of a host and a path"),
        ("http://127.0.0.1:0/x", "is no URL of a host and a path"),
        ("http://127.0.0.1:99999/x", "is no URL of a host and a path"),
        ("http://127.0.0.1:port/x", "is no URL"),
        ("http://127.0.0.1/\x01", "is no URL"),
        ("https://[::1/x", "is no URL"),
        ("http://" + "a" * 64 + ".test/x", "isn't known"),
    ],
)
def test_what_is_no_url_is_refused(folder: Path, uri: str, reason: str) -> None:
    locate(folder, "template", uri)
    with pytest.raises(CoreError, match=reason):
        template(folder)


def test_only_so_many_locations_are_tried(folder: Path, server: MirrorServer) -> None:
    bad = [f"{server.url}/missing/{number}" for number in range(LOCATION_URIS_LIMIT)]
    server.files.update(dict.fromkeys(map(str, range(LOCATION_URIS_LIMIT)), b""))
    locate(folder, "template", *bad, url(server, "good", "template"))
    with pytest.raises(CoreError, match="status 404"):
        template(folder)
    assert len(server.requests) == LOCATION_URIS_LIMIT
    assert all(behaviour == "missing" for behaviour, _, _ in server.requests)


# ------------------------------------------------------------------ where a mirror may be


@pytest.mark.clause("CORE-3")
def test_a_location_in_a_private_network_is_refused_unless_permitted(
    folder: Path, server: MirrorServer, tmp_path: Path
) -> None:
    locate(folder, "template", url(server, "good", "template"))
    cache = tmp_path / "cache"
    core = open_core(folder, accept=NAMESPACE, cache=ResourceCache(cache))
    with pytest.raises(CoreError, match=r"private network, to 127\.0\.0\.1.*--allow-private-mirr"):
        core.read_resource("template", ResourceKind.CHAT_TEMPLATE)
    assert server.requests == []
    permitted = ResourceCache(cache, allow_private_mirrors=True)
    core = open_core(folder, accept=NAMESPACE, cache=permitted)
    assert core.read_resource("template", ResourceKind.CHAT_TEMPLATE) == TEMPLATE


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1", "[::ffff:7f00:1]"])
def test_no_spelling_hides_a_private_address(folder: Path, host: str) -> None:
    locate(folder, "template", f"http://{host}:1/x")
    core = open_core(folder, accept=NAMESPACE, cache=ResourceCache(folder / "cache"))
    with pytest.raises(CoreError, match="leads into a private network"):
        core.read_resource("template", ResourceKind.CHAT_TEMPLATE)


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize("permitted", [False, True])
def test_a_redirect_into_a_private_network_is_not_followed(
    folder: Path, server: MirrorServer, permitted: bool
) -> None:
    with serving(BY_NAME, "127.0.0.2") as inner:
        target = url(inner, "good", "template")
        locate(folder, "template", f"{server.url}/redirects/{quote(target, safe='')}")
        fetcher = Fetcher(
            allow_private=permitted, patience=PATIENCE, endpoints=Endpoints(is_public=local_only)
        )
        cache = ResourceCache(folder.parent / "cache", fetcher=fetcher)
        core = open_core(folder, accept=NAMESPACE, cache=cache)
        with pytest.raises(CoreError, match=r"leads into a private network, to 127\.0\.0\.2"):
            core.read_resource("template", ResourceKind.CHAT_TEMPLATE)
        assert inner.requests == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("file:///etc/passwd", "redirects to file:"),
        ("ftp://127.0.0.1/x", "redirects to ftp:"),
        ("gopher://x", "redirects to gopher:"),
        ("http://[::1/", "redirects to no URL"),
        ("http://\x7f/", "redirects to no URL"),
    ],
)
def test_a_redirect_leads_to_a_web_server_or_nowhere(
    folder: Path, server: MirrorServer, target: str, reason: str
) -> None:
    locate(folder, "template", f"{server.url}/redirects/{quote(target, safe='')}")
    with pytest.raises(CoreError, match=reason):
        template(folder)


def test_a_redirect_between_public_hosts_is_followed(folder: Path, server: MirrorServer) -> None:
    for target in (url(server, "good", "weights"), f"/good/{NAMES['weights']}"):
        locate(folder, "weights", f"{server.url}/redirects/{quote(target, safe='')}")
        assert weights(folder) == WEIGHTS
        shutil.rmtree(folder.parent / "cache")


@pytest.mark.clause("CORE-3")
def test_a_host_is_looked_up_once_and_stays_where_it_was(
    folder: Path, server: MirrorServer
) -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]  # the second time it would lead elsewhere

    def look_up(host: str, port: int) -> list[str]:
        assert host == "mirror.test"
        return answers.pop(0)

    endpoints = Endpoints(look_up=look_up, is_public=local_only)
    location = url(server, "breaks-once", "weights").replace("127.0.0.1", "mirror.test")
    locate(folder, "weights", location)
    assert weights(folder, endpoints=endpoints) == WEIGHTS
    assert len(server.requests) == 6
    assert len(answers) == 1


@pytest.mark.clause("CORE-3")
def test_a_host_with_one_private_address_is_private(folder: Path, server: MirrorServer) -> None:
    endpoints = Endpoints(
        look_up=lambda host, port: ["127.0.0.1", "10.0.0.1"], is_public=local_only
    )
    locate(folder, "template", url(server, "good", "template").replace("127.0.0.1", "mirror.test"))
    with pytest.raises(CoreError, match=r"private network, to 127\.0\.0\.1, 10\.0\.0\.1"):
        template(folder, endpoints=endpoints)
    assert server.requests == []


def test_the_next_address_is_tried_where_one_does_not_answer(
    folder: Path, server: MirrorServer
) -> None:
    endpoints = Endpoints(
        look_up=lambda host, port: ["127.0.0.3", "127.0.0.1"], is_public=lambda address: True
    )
    locate(folder, "template", url(server, "good", "template").replace("127.0.0.1", "mirror.test"))
    assert template(folder, endpoints=endpoints) == TEMPLATE
