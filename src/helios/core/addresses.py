"""Which network addresses a mirror may have, and the one look-up that settles them.

A location set is unsigned, and so is a redirect: either could point this machine at its own
services or its neighbours'. A host's name is looked up once; the addresses found are judged, kept,
and are the only ones connected to, so that a later answer of the name's server changes nothing.
`mirror` is the caller.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from helios.dataclass import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp = Callable[[str, int], Sequence[str]]

# The last 32 bits of these are an IPv4 address: compatible, translated, and by a translator.
_IPV4_WITHIN: Final = (
    ipaddress.IPv6Network("::/96"),
    ipaddress.IPv6Network("::ffff:0:0:0/96"),
    ipaddress.IPv6Network("64:ff9b::/96"),
    ipaddress.IPv6Network("64:ff9b:1::/96"),
)
# Beside what is link-local: where clouds tell a machine its secrets, and what can hide one of those
# addresses (a local translator's networks put it anywhere).
_BARRED: Final = (
    ipaddress.IPv4Network("100.100.100.200/32"),
    ipaddress.IPv4Network("168.63.129.16/32"),
    ipaddress.IPv4Network("192.0.0.192/32"),
    ipaddress.IPv6Network("fd00:ec2::/32"),
    ipaddress.IPv6Network("fd20:ce::/32"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
)
_SITE_LOCAL: Final = ipaddress.IPv6Network("fec0::/10")
_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a host's name stands for. `private` if any of its addresses isn't public, `barred` if
    any is one that nothing may be asked of."""

    addresses: tuple[str, ...]
    private: bool
    barred: bool


class Endpoints:
    """Hosts that were looked up. Threads share it."""

    def __init__(
        self,
        look_up: LookUp | None = None,
        is_public: Callable[[Address], bool] | None = None,
    ) -> None:
        self._look_up = look_up or _look_up
        self._is_public = is_public or is_public_address
        self._found: dict[tuple[str, int], Future[Endpoint]] = {}
        self._changing = threading.Lock()

    def find(self, host: str, port: int, *, within_s: float | None = None) -> Endpoint:
        """The host's endpoint, the same one for ever. Raises OSError if nobody knows it, or not in
        time; asked again, it is looked up anew, or the look-up that goes on is waited for."""
        with self._changing:
            found = self._found.get((host, port))
            if found is None:
                found = self._found[host, port] = Future()
                # A thread of its own, since the system's look-up can't be told when to stop.
                threading.Thread(
                    target=self._settle,
                    args=(host, port, found),
                    name="helios look-up",
                    daemon=True,
                ).start()
        try:
            return found.result(within_s)
        except TimeoutError as error:
            raise TimeoutError("no name server answers in time") from error

    def _settle(self, host: str, port: int, found: Future[Endpoint]) -> None:
        try:
            endpoint = self._judge(self._look_up(host, port))
        except BaseException as error:  # whoever waits is told
            with self._changing:
                del self._found[host, port]
            found.set_exception(error)
        else:
            found.set_result(endpoint)

    def _judge(self, addresses: Sequence[str]) -> Endpoint:
        if not addresses:
            raise OSError("it has no address")
        different = tuple(dict.fromkeys(addresses))
        judged = [ipaddress.ip_address(address) for address in different]
        return Endpoint(
            different,
            private=not all(self._is_public(address) for address in judged),
            barred=any(is_barred_address(address) for address in judged),
        )


def _look_up(host: str, port: int) -> list[str]:
    """Addresses of a host, in the order that the system prefers."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # a label that no name can have
        raise OSError(str(error)) from error
    return [str(address[0]) for _, _, _, _, address in found]


def is_public_address(address: Address) -> bool:
    """Whether an address is one of the internet's, and stands for no other one that isn't: IPv4
    addresses that are mapped, translated or tunnelled are judged as themselves."""
    return not is_barred_address(address) and all(
        one.is_global and not one.is_reserved and one not in _SITE_LOCAL for one in _meant(address)
    )


def is_barred_address(address: Address) -> bool:
    """Whether nothing is ever asked of an address, whatever the user permits: link-local,
    multicast, unspecified, or a cloud's own, also as an IPv4 address inside."""
    return any(
        one.is_link_local
        or one.is_multicast
        or one.is_unspecified
        or one == _BROADCAST
        or any(one in network for network in _BARRED)
        for one in _meant(address)
    )


def _meant(address: Address) -> tuple[Address, ...]:
    """The addresses that one stands for: the IPv4 addresses inside, or itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.is_loopback or address.is_unspecified:
        return (address,)
    if (inner := address.ipv4_mapped or address.sixtofour) is not None:
        return (inner,)
    if address.teredo is not None:
        return address.teredo  # the relay's server and the client
    if any(address in network for network in _IPV4_WITHIN):
        return (ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF),)
    return (address,)
