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
from helios.core.addresses import Endpoint, Endpoints, is_barred_address, is_public_address
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


def test_a_look_up_that_nobody_answers_is_given_up_and_not_repeated() -> None:
    asked: list[str] = []
    answered = threading.Event()

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        answered.wait()
        return ["192.0.2.1"]

    endpoints = Endpoints(look_up=look_up)
    for _ in range(3):  # as threads do that want the same host
        with pytest.raises(OSError, match="no name server answers in time"):
            endpoints.find("mirror.test", 80, within_s=0.0)
    answered.set()
    assert endpoints.find("mirror.test", 80).addresses == ("192.0.2.1",)
    assert asked == ["mirror.test"]


def test_a_host_that_nobody_knows_holds_up_no_other() -> None:
    answered = threading.Event()

    def look_up(host: str, port: int) -> list[str]:
        if host == "slow.test":
            answered.wait()
        return ["192.0.2.1"]

    endpoints = Endpoints(look_up=look_up)
    with pytest.raises(OSError, match="in time"):
        endpoints.find("slow.test", 80, within_s=0.0)
    assert endpoints.find("mirror.test", 80).addresses == ("192.0.2.1",)
    answered.set()


def test_a_host_that_is_not_known_now_may_be_later() -> None:
    answers: list[list[str] | OSError] = [OSError("nobody knows it"), [], ["192.0.2.1"]]

    def look_up(host: str, port: int) -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    endpoints = Endpoints(look_up=look_up)
    for reason in ("nobody knows it", "it has no address"):
        with pytest.raises(OSError, match=reason):
            endpoints.find("mirror.test", 80)
    assert endpoints.find("mirror.test", 80) is endpoints.find("mirror.test", 80)


def test_a_mirror_whose_name_server_stalls_is_survived(folder: Path, server: MirrorServer) -> None:
    answered = threading.Event()

    def look_up(host: str, port: int) -> list[str]:
        if host == "slow.test":
            answered.wait()
        return ["127.0.0.1"]

    class Impatient(Endpoints):
        """Waits for that host alone no longer than for anything real."""

        def find(self, host: str, port: int, *, within_s: float | None = None) -> Endpoint:
            return super().find(host, port, within_s=0.0 if host == "slow.test" else within_s)

    slow = "http://slow.test/x"
    locate(folder, "template", slow)
    core = permitted(folder, Impatient(look_up=look_up))
    try:
        with pytest.raises(CoreError, match=r"slow\.test isn't known \(no name server .*2 times"):
            core.read_resource("template", ResourceKind.CHAT_TEMPLATE)
        locate(folder, "template", slow, url(server, "good", "template"))
        core = permitted(folder, Impatient(look_up=look_up))
        assert core.read_resource("template", ResourceKind.CHAT_TEMPLATE) == TEMPLATE
    finally:
        answered.set()
