"""Where a mirror may be, and where nothing may ever be asked, whatever is permitted."""

from __future__ import annotations

import ipaddress
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from helios.core import OpenedCore, ResourceKind, open_core
from helios.core.addresses import Endpoints, is_barred_address, is_public_address
from helios.core.cache import ResourceCache
from helios.core.fetch import Fetcher
from helios.errors import CoreError
from tests.core.mirror_server import MirrorServer, serving
from tests.core.sample_core import NAMESPACE, write_core
from tests.core.test_mirrors import BY_NAME, PATIENCE, TEMPLATE, locate, url

# Nothing is ever asked of these.
BARRED = [
    "0.0.0.0", "169.254.0.1", "169.254.169.254", "224.0.0.1", "239.1.1.1", "255.255.255.255",
    "::", "fe80::1", "fe80::1%eth0", "febf::1", "ff02::1", "ff0e::1",
    # clouds' own
    "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23",
    "fd20:ce::254",
    # IPv4 inside: mapped, compatible, translated, by a translator, tunnelled
    "::ffff:169.254.169.254", "::169.254.169.254", "::ffff:0:169.254.169.254",
    "64:ff9b::169.254.169.254", "64:ff9b:1::169.254.169.254", "64:ff9b:1:a9fe:a9:fe00:808:808",
    "2002:a9fe:a9fe::1", "2001:0:102:304::5601:5601", "2001:0:a9fe:a9fe::f5ff:fffe",
    "::ffff:168.63.129.16", "::ffff:0.0.0.0", "::ffff:224.0.0.1",
]  # fmt: skip
# These only with --allow-private-mirrors.
PRIVATE = [
    "10.1.2.3", "100.64.0.1", "127.0.0.1", "172.16.0.1", "192.168.1.1", "198.18.0.1", "240.0.0.1",
    "::1", "fc00::1", "fd12::1", "fec0::1", "2001:db8::1",
    "::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::",
    "2001:0:102:304::f5ff:fffe",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101",
    "64:ff9b:1::101:101",
]  # fmt: skip


@pytest.fixture
def server() -> Iterator[MirrorServer]:
    with serving(BY_NAME) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_core(tmp_path / "core")
    shutil.rmtree(folder / "resources")
    return folder


def permitted(folder: Path, endpoints: Endpoints | None = None) -> OpenedCore:
    """The core, opened with --allow-private-mirrors."""
    fetcher = Fetcher(allow_private=True, patience=PATIENCE, endpoints=endpoints)
    cache = ResourceCache(folder.parent / "cache", fetcher=fetcher)
    return open_core(folder, accept=NAMESPACE, cache=cache)


@pytest.mark.parametrize("address", BARRED)
def test_barred_addresses(address: str) -> None:
    assert is_barred_address(ipaddress.ip_address(address))
    assert not is_public_address(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address: str) -> None:
    assert not is_public_address(ipaddress.ip_address(address))
    assert not is_barred_address(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    assert is_public_address(ipaddress.ip_address(address))


HOSTS = [
    "169.254.169.254", "2852039166", "0xa9fea9fe", "169.254.43518",
    "[::ffff:a9fe:a9fe]", "[fe80::1]", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]", "0", "0.0.0.0",
    "[::]", "224.0.0.1", "[ff02::1]",
]  # fmt: skip


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize("host", HOSTS)
def test_no_location_leads_to_a_barred_address(folder: Path, host: str) -> None:
    locate(folder, "template", f"http://{host}:1/x")
    with pytest.raises(CoreError, match="where no mirror may be: link-local"):
        permitted(folder).read_resource("template", ResourceKind.CHAT_TEMPLATE)


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize("host", HOSTS)
def test_no_redirect_leads_to_a_barred_address(
    folder: Path, server: MirrorServer, host: str
) -> None:
    target = quote(f"http://{host}:1/latest/meta-data", safe="")
    locate(folder, "template", f"{server.url}/redirects/{target}")
    with pytest.raises(CoreError, match="where no mirror may be: link-local"):
        permitted(folder).read_resource("template", ResourceKind.CHAT_TEMPLATE)
    assert len(server.requests) == 1


@pytest.mark.clause("CORE-3")
def test_a_host_with_one_barred_address_is_barred(folder: Path, server: MirrorServer) -> None:
    endpoints = Endpoints(
        look_up=lambda host, port: ["127.0.0.1", "169.254.169.254"], is_public=lambda address: True
    )
    locate(folder, "template", url(server, "good", "template").replace("127.0.0.1", "mirror.test"))
    with pytest.raises(CoreError, match=r"leads to 127\.0\.0\.1, 169\.254\.169\.254, where no"):
        permitted(folder, endpoints).read_resource("template", ResourceKind.CHAT_TEMPLATE)
    assert server.requests == []


def test_what_is_permitted_still_serves(folder: Path, server: MirrorServer) -> None:
    locate(folder, "template", url(server, "good", "template"))
    assert permitted(folder).read_resource("template", ResourceKind.CHAT_TEMPLATE) == TEMPLATE


def test_a_look_up_that_nobody_answers_is_given_up() -> None:
    answered = threading.Event()

    def look_up(host: str, port: int) -> list[str]:
        answered.wait()
        return ["192.0.2.1"]

    endpoints = Endpoints(look_up=look_up)
    with pytest.raises(OSError, match="no name server answers in time"):
        endpoints.find("mirror.test", 80, within_s=0.01)
    answered.set()
    assert endpoints.find("mirror.test", 80).addresses == ("192.0.2.1",)


def test_who_waited_for_a_look_up_takes_its_failure() -> None:
    """Else threads that want the same unknown host would wait for one look-up after the other."""
    asked: list[str] = []
    waiting = threading.Event()
    failures: list[OSError] = []

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        waiting.wait()
        raise OSError("nobody knows it")

    endpoints = Endpoints(look_up=look_up)

    def find() -> None:
        try:
            endpoints.find("mirror.test", 80)
        except OSError as error:
            failures.append(error)

    class Watched:
        """The lock, which says when the second thread has come to it."""

        def __init__(self) -> None:
            self._lock, self._comers = threading.Lock(), 0

        def __enter__(self) -> None:
            self._comers += 1
            if self._comers == 2:
                waiting.set()
            self._lock.acquire()

        def __exit__(self, *error: object) -> None:
            self._lock.release()

    endpoints._looking = Watched()  # type: ignore[assignment]
    threads = [threading.Thread(target=find) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(failure) for failure in failures] == ["nobody knows it"] * 2
    assert asked == ["mirror.test"]
    with pytest.raises(OSError, match="nobody knows it"):
        endpoints.find("mirror.test", 80)  # asked later, it is looked up anew
    assert asked == ["mirror.test"] * 2
