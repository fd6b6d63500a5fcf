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
from dataclasses import dataclass
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp = Callable[[str, int], Sequence[str]]

# Translators put an IPv4 address into the last 32 bits of these.
_NAT64: Final = (
    ipaddress.IPv6Network("64:ff9b::/96"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a host's name stands for. `private` if any of its addresses isn't public."""

    addresses: tuple[str, ...]
    private: bool


class Endpoints:
    """Hosts that were looked up. Threads share it."""

    def __init__(
        self,
        look_up: LookUp | None = None,
        is_public: Callable[[Address], bool] | None = None,
    ) -> None:
        self._look_up = look_up or _look_up
        self._is_public = is_public or is_public_address
        self._known: dict[tuple[str, int], Endpoint] = {}
        self._looking = threading.Lock()

    def find(self, host: str, port: int) -> Endpoint:
        """The host's endpoint, the same one for ever. Raises OSError if nobody knows it."""
        with self._looking:
            known = self._known.get((host, port))
            if known is None:
                addresses = tuple(dict.fromkeys(self._look_up(host, port)))
                if not addresses:
                    raise OSError("it has no address")
                private = not all(
                    self._is_public(ipaddress.ip_address(address)) for address in addresses
                )
                known = self._known[host, port] = Endpoint(addresses, private)
            return known


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
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is None and any(address in network for network in _NAT64):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public_address(inner)
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )
