"""Whatever a location set, a redirect or an answer says: an error that names the mirror, or the
bytes that were asked for."""

from __future__ import annotations

import httpcore
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.core.addresses import Endpoints
from helios.core.mirror import MirrorClient, MirrorFailed, MirrorRefused, Patience
from helios.core.pinned_network import PinnedNetwork

URL = "http://mirror.test/file"
TLS = httpx.create_ssl_context()
START, NBYTES, TOTAL = 100, 20, 1000
GOOD = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Length: 20\r\n"
    b"Content-Range: bytes 100-119/1000\r\n\r\n" + bytes(range(20))
)
REDIRECT = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /elsewhere\r\n\r\n"
# What is awkward in addresses, beside arbitrary text.
PIECES = [
    *("xn--", "xn--a", "%", "[", "]", "::1", "@", ":", "/", "//", "?", "#", "..", "%00", "\\"),
    *("\u3002", "\u00df", "\u0130", "127.0.0.1", "0x7f", "a" * 64, "file:", "http:", "//a"),
]
awkward = st.lists(st.text(max_size=20) | st.sampled_from(PIECES), max_size=6).map("".join)


def nobody(host: str, port: int) -> list[str]:
    raise OSError("nobody knows it")


def client(*answers: bytes) -> MirrorClient:
    """A client whose every connection gives these bytes."""
    endpoints = Endpoints(look_up=lambda host, port: ["192.0.2.1"])
    made = MirrorClient(endpoints, Patience(), TLS, allow_private=True)
    made._network._sockets = httpcore.MockBackend(list(answers))  # type: ignore[assignment]
    assert isinstance(made._network, PinnedNetwork)
    return made


def read(made: MirrorClient, url: str = URL) -> bytes:
    try:
        return made.read_range(url, START, NBYTES, TOTAL)
    finally:
        made.close()


def test_a_good_answer_is_the_range() -> None:
    assert read(client(GOOD)) == bytes(range(20))


@settings(max_examples=300, deadline=None)
@given(scheme=st.sampled_from(["http:", "https:", "http://", "https://", "HTTP://"]), rest=awkward)
def test_no_location_upsets_the_client(scheme: str, rest: str) -> None:
    made = MirrorClient(Endpoints(look_up=nobody), Patience(), TLS, allow_private=True)
    with pytest.raises((MirrorRefused, MirrorFailed)):
        read(made, scheme + rest)


@settings(max_examples=300, deadline=None)
@given(location=st.binary(max_size=40) | awkward.map(str.encode))
def test_no_redirect_upsets_the_client(location: bytes) -> None:
    from helios.core.mirror import _redirected

    try:
        target = _redirected(httpx.URL("https://mirror.test/a"), location, URL)
    except MirrorRefused:
        return
    assert target.scheme == "https"


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_no_answer_upsets_the_client(data: st.DataObject) -> None:
    """Answers with a few bytes changed, left out or put in, cut anywhere."""
    answer = bytearray(data.draw(st.sampled_from([GOOD, REDIRECT, REDIRECT + GOOD])))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(answer)))
        answer[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    cut = data.draw(st.integers(0, len(answer)))
    try:
        content = read(client(bytes(answer[:cut]), bytes(answer[cut:])))
    except (MirrorRefused, MirrorFailed):
        return
    assert len(content) == NBYTES


@settings(max_examples=300, deadline=None)
@given(answer=st.binary(max_size=200))
def test_no_bytes_at_all_upset_the_client(answer: bytes) -> None:
    with pytest.raises((MirrorRefused, MirrorFailed)):
        read(client(answer))


@pytest.mark.parametrize(
    ("answer", "wait_s"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n", 7.0),
        (b"HTTP/1.1 429 Busy\r\nContent-Length: 0\r\nRetry-After: tomorrow\r\n\r\n", 0.0),
        (b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\nRetry-After: -1\r\n\r\n", 0.0),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 0.0),
    ],
)
def test_a_busy_mirror_says_how_long_it_wants_to_be_left_alone(
    answer: bytes, wait_s: float
) -> None:
    with pytest.raises(MirrorFailed) as failed:
        read(client(answer))
    assert failed.value.wait_s == wait_s


def test_an_informational_answer_is_passed_over() -> None:
    assert read(client(b"HTTP/1.1 103 Early Hints\r\n\r\n" + GOOD)) == bytes(range(20))


def test_only_the_range_is_asked_for() -> None:
    """Nothing that tells who asks but the program's name and version."""
    sent: list[bytes] = []

    class Listening(httpcore.MockStream):
        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            sent.append(buffer)

    class Backend(httpcore.MockBackend):
        def connect_tcp(self, *arguments: object, **named: object) -> httpcore.NetworkStream:
            return Listening([GOOD])

    made = client()
    made._network._sockets = Backend([])  # type: ignore[assignment]
    read(made)
    lines = b"".join(sent).decode().split("\r\n")
    assert lines[0] == "GET /file HTTP/1.1"
    fields = {line.partition(":")[0].lower(): line.partition(": ")[2] for line in lines[1:] if line}
    assert fields.pop("user-agent").startswith("helios/")
    assert fields == {
        "host": "mirror.test",
        "accept-encoding": "identity",
        "range": "bytes=100-119",
    }
