"""Asks a mirror for a range of a file: HTTP with limits on everything that the other side decides.

A client does one request at a time. It sends nothing but the range it wants, follows redirects only
to where a location may point, connects only to addresses that `addresses` approved, and takes
exactly the bytes it asked for, at no less than a given rate. What the bytes are is not looked at
here. `fetch` is the caller; whether and when to ask again is its decision.

Requests go through httpcore, the transport of httpx, since only there a connection can be told its
addresses and its deadline. Proxies of the environment are not used.
"""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import httpcore
import httpx

from helios.core.addresses import Endpoint, Endpoints
from helios.core.pinned_network import PinnedNetwork
from helios.core.shown_uris import shown_text, shown_uri
from helios.dataclass import dataclass
from helios.errors import CoreError
from helios.version import VERSION

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_BUSY: Final = frozenset({408, 425, 429})
_PORTS: Final = {"http": 80, "https": 443}
_CONTENT_RANGE: Final = re.compile(rb"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a mirror is waited for, in seconds, and how often it may fail.

    `connect_s` is for looking a host up and for connecting to it, `silence_s` may pass without a
    byte. Content may be `grace_s` behind `least_rate` bytes a second, or `brisk_rate` where another
    mirror might do better; what comes before the content is paid from that as well. A range is
    asked for `attempts` times, with pauses that start at `pause_s` and double.
    """

    connect_s: float = 5.0
    silence_s: float = 5.0
    grace_s: float = 10.0
    least_rate: int = 16 << 10
    brisk_rate: int = 256 << 10
    attempts: int = 3
    pause_s: float = 0.5
    longest_pause_s: float = 10.0
    redirects: int = 5

    @classmethod
    def waiting(cls, timeout_s: float) -> Patience:
        """The usual patience, but for how long a mirror may leave us without an answer."""
        return cls(connect_s=timeout_s, silence_s=timeout_s, grace_s=2 * timeout_s)


class MirrorRefused(CoreError):
    """A mirror isn't what it should be, or not where it may be: it isn't asked again. `of_file`
    says that this concerns the one file alone."""

    def __init__(self, what: str, *, where: str, of_file: bool = False) -> None:
        super().__init__(what, where=where)
        self.of_file = of_file


class MirrorFailed(CoreError):
    """A mirror didn't answer, or not to the end: it may do so another time. `wait_s` is how long
    it wants to be left alone."""

    def __init__(self, what: str, *, where: str, wait_s: float = 0.0) -> None:
        super().__init__(what, where=where)
        self.wait_s = wait_s


class MirrorSlow(MirrorFailed):
    """A mirror's content came too slowly."""


class MirrorClient:
    """Asks for ranges, one after the other; not shared between threads. `tls` says which
    certificates hold. `allow_private` lets a location name a private address; a redirect leads to
    one only from one. `ended` makes it give up, from another thread. `clock` is that of rates."""

    def __init__(
        self,
        endpoints: Endpoints,
        patience: Patience,
        tls: ssl.SSLContext,
        *,
        allow_private: bool,
        ended: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoints = endpoints
        self._patience = patience
        self._allow_private = allow_private
        self._network = PinnedNetwork(ended, clock)
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            keepalive_expiry=30.0,
            network_backend=self._network,
        )

    def close(self) -> None:
        """Closes its connections."""
        self._pool.close()

    def read_range(
        self, url: str, start: int, nbytes: int, total_nbytes: int, *, brisk: bool = False
    ) -> bytes:
        """`nbytes` bytes from `start` of a file of `total_nbytes`, at the least rate or the brisk
        one. Raises MirrorRefused or MirrorFailed naming the URL, as far as it may be shown."""
        where = shown_uri(url)
        rate = self._patience.brisk_rate if brisk else self._patience.least_rate
        self._network.begin(self._patience.grace_s, rate)
        try:
            return self._read_range(_parsed(url, where), start, nbytes, total_nbytes, where)
        except httpcore.TimeoutException as error:
            if self._network.is_late() and not isinstance(error, httpcore.ConnectTimeout):
                raise MirrorSlow(f"sends less than {rate / 1024:.0f} KiB/s", where=where) from error
            raise MirrorFailed("didn't answer in time", where=where) from error
        except httpcore.ConnectError as error:
            what = shown_text(str(error))
            if isinstance(error.__context__, ssl.SSLCertVerificationError):
                raise MirrorRefused(f"has no valid certificate ({what})", where=where) from error
            raise MirrorFailed(f"can't be reached ({what})", where=where) from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise MirrorFailed(f"broke off ({shown_text(str(error))})", where=where) from error

    def _read_range(
        self, target: httpx.URL, start: int, nbytes: int, total_nbytes: int, where: str
    ) -> bytes:
        allow_private = self._allow_private
        silence_s = self._patience.silence_s
        times = {"connect": self._patience.connect_s, "read": silence_s, "write": silence_s}
        for _ in range(self._patience.redirects + 1):
            endpoint = self._endpoint(target, where, allow_private=allow_private)
            headers = [
                ("Host", target.netloc.decode("ascii")),
                ("User-Agent", f"helios/{VERSION}"),
                ("Accept-Encoding", "identity"),
                ("Range", f"bytes={start}-{start + nbytes - 1}"),
            ]
            with self._pool.stream(
                "GET", _core_url(target), headers=headers, extensions={"timeout": times}
            ) as answer:
                fields = {name.lower(): value for name, value in answer.headers}
                if answer.status not in _REDIRECTS:
                    _check_answer(answer.status, fields, start, nbytes, total_nbytes, where)
                    return self._body(answer.iter_stream(), nbytes, where)
            allow_private = allow_private and endpoint.private
            target = _redirected(target, fields.get(b"location"), where)
        raise MirrorRefused(f"redirects more than {self._patience.redirects} times", where=where)

    def _endpoint(self, target: httpx.URL, where: str, *, allow_private: bool) -> Endpoint:
        """Where a URL leads. Raises MirrorRefused for an address that it may not have."""
        port = _PORTS[target.scheme] if target.port is None else target.port
        host = target.raw_host.decode("ascii")  # `.host` would decode what anybody wrote, or fail
        if not host or target.userinfo or not 0 < port <= 65535:
            raise MirrorRefused("is no URL of a host and a path", where=where)
        within_s = self._network.left_s(self._patience.connect_s)
        try:
            endpoint = self._endpoints.find(host, port, within_s=within_s)
        except OSError as error:
            what = f"the host {shown_text(host)} isn't known ({shown_text(str(error))})"
            raise MirrorFailed(what, where=where) from error
        addresses = shown_text(", ".join(endpoint.addresses))
        if endpoint.barred:
            raise MirrorRefused(
                f"leads to {addresses}, where no mirror may be: link-local, multicast and"
                " unspecified addresses, and those of cloud services for their machines",
                where=where,
            )
        if endpoint.private and not allow_private:
            raise MirrorRefused(
                f"leads into a private network, to {addresses}, where only a location itself may"
                " lead, and only with --allow-private-mirrors",
                where=where,
            )
        self._network.approve(host, port, endpoint)
        return endpoint

    def _body(self, pieces: Iterable[bytes], nbytes: int, where: str) -> bytes:
        content = bytearray()
        for piece in pieces:
            if len(content) + len(piece) > nbytes:
                raise MirrorRefused("sends more than was asked for", where=where)
            content += piece
            self._network.advance(len(piece))
        if len(content) < nbytes:
            raise MirrorFailed(f"ends after {len(content)} of {nbytes} bytes", where=where)
        return bytes(content)


def _core_url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )


def _parsed(url: str, where: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        # Why, the error would say with parts of the URL, which may be of a password.
        raise MirrorRefused("is no URL", where=where) from None
    if parsed.scheme not in _PORTS:
        raise MirrorRefused("is neither http: nor https:", where=where)
    return parsed


def _redirected(source: httpx.URL, location: bytes | None, where: str) -> httpx.URL:
    """Where a redirect leads. Raises MirrorRefused where it mustn't."""
    try:
        target = source.join((location or b"").decode("ascii"))
    except (httpx.InvalidURL, ValueError):
        raise MirrorRefused("redirects to no URL", where=where) from None
    if target.scheme not in _PORTS:
        raise MirrorRefused(f"redirects to {shown_text(target.scheme, 20)}:", where=where)
    if source.scheme == "https" and target.scheme != "https":
        raise MirrorRefused("redirects from https: to http:", where=where)
    return target


def _check_answer(
    status: int,
    fields: Mapping[bytes, bytes],
    start: int,
    nbytes: int,
    total_nbytes: int,
    where: str,
) -> None:
    """Raises unless what follows is the range as it was asked for."""
    if status in _BUSY or status >= 500:
        wait_s = _wait_s(fields.get(b"retry-after"))
        raise MirrorFailed(f"answers with status {status}", where=where, wait_s=wait_s)
    if status not in (200, 206):
        raise MirrorRefused(f"answers with status {status}", where=where, of_file=True)
    if fields.get(b"content-encoding", b"identity").lower() != b"identity":
        raise MirrorRefused("sends its content encoded", where=where)
    if status == 200:
        # The whole, which is fine if it was asked for.
        if nbytes != total_nbytes:
            raise MirrorRefused("sends the whole where a range was asked for", where=where)
        return
    found = _CONTENT_RANGE.fullmatch(fields.get(b"content-range", b""))
    if found is None:
        raise MirrorRefused("sends a part and doesn't say which", where=where)
    first, last, total = found.groups()
    if (int(first), int(last)) != (start, start + nbytes - 1):
        raise MirrorRefused(
            f"sends bytes {first.decode()} to {last.decode()}, not {start} to {start + nbytes - 1}",
            where=where,
        )
    if total != b"*" and int(total) != total_nbytes:
        raise MirrorRefused(
            f"has {total.decode()} bytes, not the signed {total_nbytes}", where=where, of_file=True
        )


def _wait_s(retry_after: bytes | None) -> float:
    """Seconds that an answer asks to wait; dates are not read."""
    return float(retry_after) if retry_after and re.fullmatch(rb"\d{1,6}", retry_after) else 0.0
