"""Asks a mirror for a range of a file: HTTP with limits on everything that the other side decides.

A client does one request at a time. It sends nothing but the range it wants, follows redirects only
to where a location may point, connects only to addresses that `addresses` approved, and takes
exactly the bytes it asked for, within a deadline for the whole attempt. What the bytes are is not
looked at here. `fetch` is the caller; whether and when to ask again is its decision.

Requests go through httpcore, the transport of httpx, since only there a connection can be told its
addresses and its deadline. Proxies of the environment are not used.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import httpcore
import httpx

from helios.core.addresses import Endpoint, Endpoints
from helios.core.pinned_network import PinnedNetwork
from helios.errors import CoreError
from helios.version import VERSION

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_BUSY: Final = frozenset({408, 425, 429})
_PORTS: Final = {"http": 80, "https": 443}
_CONTENT_RANGE: Final = re.compile(rb"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a mirror is waited for, in seconds, and how often it may fail.

    `silence_s` may pass without a byte, `attempt_s` in all for one range of at most 4 MiB. A range
    is asked for `attempts` times, with pauses that start at `pause_s` and double.
    """

    connect_s: float = 10.0
    silence_s: float = 20.0
    attempt_s: float = 120.0
    attempts: int = 4
    pause_s: float = 0.5
    longest_pause_s: float = 10.0
    redirects: int = 5


class MirrorRefused(CoreError):
    """A mirror isn't what it should be, or not where it may be: it isn't asked again."""


class MirrorFailed(CoreError):
    """A mirror didn't answer, or not to the end: it may do so another time. `wait_s` is how long
    it wants to be left alone."""

    def __init__(self, what: str, *, where: str, wait_s: float = 0.0) -> None:
        super().__init__(what, where=where)
        self.wait_s = wait_s


class MirrorClient:
    """Asks for ranges, one after the other; not shared between threads. `tls` says which
    certificates hold. `allow_private` lets a location name a private address; a redirect leads to
    one only from one."""

    def __init__(
        self,
        endpoints: Endpoints,
        patience: Patience,
        tls: ssl.SSLContext,
        *,
        allow_private: bool,
    ) -> None:
        self._endpoints = endpoints
        self._patience = patience
        self._allow_private = allow_private
        self._network = PinnedNetwork(endpoints)
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            keepalive_expiry=30.0,
            network_backend=self._network,
        )

    def close(self) -> None:
        """Closes its connections."""
        self._pool.close()

    def read_range(self, url: str, start: int, nbytes: int, total_nbytes: int) -> bytes:
        """`nbytes` bytes from `start` of a file of `total_nbytes`. Raises MirrorRefused or
        MirrorFailed naming the URL."""
        self._network.deadline_s = time.monotonic() + self._patience.attempt_s
        try:
            return self._read_range(url, start, nbytes, total_nbytes)
        except httpcore.TimeoutException as error:
            raise MirrorFailed("didn't answer in time", where=url) from error
        except httpcore.ConnectError as error:
            if isinstance(error.__context__, ssl.SSLCertVerificationError):
                raise MirrorRefused(f"has no valid certificate ({error})", where=url) from error
            raise MirrorFailed(f"can't be reached ({error})", where=url) from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise MirrorFailed(f"broke off ({error})", where=url) from error

    def _read_range(self, url: str, start: int, nbytes: int, total_nbytes: int) -> bytes:
        allow_private = self._allow_private
        target = _parsed(url, url)
        for _ in range(self._patience.redirects + 1):
            endpoint = self._endpoint(target, url, allow_private=allow_private)
            headers = [
                ("Host", target.netloc.decode("ascii")),
                ("User-Agent", f"helios/{VERSION}"),
                ("Accept-Encoding", "identity"),
                ("Range", f"bytes={start}-{start + nbytes - 1}"),
            ]
            silence_s = self._patience.silence_s
            times = {"connect": self._patience.connect_s, "read": silence_s, "write": silence_s}
            with self._pool.stream(
                "GET", _core_url(target), headers=headers, extensions={"timeout": times}
            ) as answer:
                fields = {name.lower(): value for name, value in answer.headers}
                if answer.status not in _REDIRECTS:
                    _check_answer(answer.status, fields, start, nbytes, total_nbytes, url)
                    return _body(answer.iter_stream(), nbytes, url)
            allow_private = allow_private and endpoint.private
            target = _redirected(target, fields.get(b"location"), url)
        raise MirrorRefused(f"redirects more than {self._patience.redirects} times", where=url)

    def _endpoint(self, target: httpx.URL, url: str, *, allow_private: bool) -> Endpoint:
        """Where a URL leads. Raises MirrorRefused for an address that it may not have."""
        port = target.port or _PORTS[target.scheme]
        host = target.raw_host.decode("ascii")  # `.host` would decode what anybody wrote, or fail
        if not host or target.userinfo or port > 65535:
            raise MirrorRefused("is no URL of a host and a path", where=url)
        try:
            endpoint = self._endpoints.find(host, port)
        except OSError as error:
            raise MirrorFailed(f"the host {host} isn't known ({error})", where=url) from error
        if endpoint.private and not allow_private:
            addresses = ", ".join(endpoint.addresses)
            raise MirrorRefused(
                f"leads into a private network, to {addresses}, where only a location itself may"
                " lead, and only with --allow-private-mirrors",
                where=url,
            )
        return endpoint


def _core_url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )


def _parsed(text: str, url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(text)
    except (httpx.InvalidURL, ValueError) as error:
        raise MirrorRefused(f"is no URL ({error})", where=url) from error
    if parsed.scheme not in _PORTS:
        raise MirrorRefused("is neither http: nor https:", where=url)
    return parsed


def _redirected(source: httpx.URL, location: bytes | None, url: str) -> httpx.URL:
    """Where a redirect leads. Raises MirrorRefused where it mustn't."""
    try:
        target = source.join((location or b"").decode("ascii"))
    except (httpx.InvalidURL, ValueError) as error:
        raise MirrorRefused(f"redirects to no URL ({error})", where=url) from error
    if target.scheme not in _PORTS:
        raise MirrorRefused(f"redirects to {target.scheme}:", where=url)
    if source.scheme == "https" and target.scheme != "https":
        raise MirrorRefused("redirects from https: to http:", where=url)
    return target


def _check_answer(
    status: int,
    fields: Mapping[bytes, bytes],
    start: int,
    nbytes: int,
    total_nbytes: int,
    url: str,
) -> None:
    """Raises unless what follows is the range as it was asked for."""
    if status in _BUSY or status >= 500:
        raise MirrorFailed(
            f"answers with status {status}", where=url, wait_s=_wait_s(fields.get(b"retry-after"))
        )
    if status not in (200, 206):
        raise MirrorRefused(f"answers with status {status}", where=url)
    if fields.get(b"content-encoding", b"identity").lower() != b"identity":
        raise MirrorRefused("sends its content encoded", where=url)
    if status == 200:
        # The whole, which is fine if it was asked for.
        if nbytes != total_nbytes:
            raise MirrorRefused("sends the whole where a range was asked for", where=url)
        return
    found = _CONTENT_RANGE.fullmatch(fields.get(b"content-range", b""))
    if found is None:
        raise MirrorRefused("sends a part and doesn't say which", where=url)
    first, last, total = found.groups()
    if (int(first), int(last)) != (start, start + nbytes - 1):
        raise MirrorRefused(
            f"sends bytes {first.decode()} to {last.decode()}, not {start} to {start + nbytes - 1}",
            where=url,
        )
    if total != b"*" and int(total) != total_nbytes:
        raise MirrorRefused(f"has {total.decode()} bytes, not the signed {total_nbytes}", where=url)


def _wait_s(retry_after: bytes | None) -> float:
    """Seconds that an answer asks to wait; dates are not read."""
    return float(retry_after) if retry_after and re.fullmatch(rb"\d{1,6}", retry_after) else 0.0


def _body(pieces: Iterable[bytes], nbytes: int, url: str) -> bytes:
    content = bytearray()
    for piece in pieces:
        if len(content) + len(piece) > nbytes:
            raise MirrorRefused("sends more than was asked for", where=url)
        content += piece
    if len(content) < nbytes:
        raise MirrorFailed(f"ends after {len(content)} of {nbytes} bytes", where=url)
    return bytes(content)
