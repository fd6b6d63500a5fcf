"""Hostile bytes behind good declarations: frames, sealed chunks, locations, answers of mirrors."""

from __future__ import annotations

import hashlib
import os
import ssl
from functools import cache
from typing import Any, Final

import httpcore

from fuzz.stored import NoInput, copy_of, scratch, stored
from helios.core import ResourceKind
from helios.core import format as core_format
from helios.core.addresses import Endpoints
from helios.core.frames import decode_frame
from helios.core.locations import Locations
from helios.core.mirror import MirrorClient, Patience
from helios.core.resources import FrameResource, SealedResource
from helios.core.sealed import chunk_associated_data, chunk_nonce, open_sealed
from helios.errors import HeliosError

_BLOCK_NBYTES: Final = 128 << 10


def run_frame(data: bytes) -> None:
    """Signed bytes that claim to be a frame. Four bytes give the signed length, one the size of
    the pieces that they arrive in."""
    if len(data) < 6:
        raise NoInput
    decoded_nbytes = int.from_bytes(data[:4], "little") % (4 << 20)
    piece, stored_bytes = 1 + data[4] * 3, data[5:]
    resource = FrameResource(
        id="r",
        kind=ResourceKind.MODULE,
        stored_nbytes=len(stored_bytes),
        stored_sha256=hashlib.sha256(stored_bytes).digest(),
        decoded_nbytes=decoded_nbytes,
        chunk_sha256=tuple(core_format.chunk_digests(stored_bytes)),
    )
    pieces = [stored_bytes[at : at + piece] for at in range(0, len(stored_bytes), piece)]
    total = 0
    for part in decode_frame(resource, pieces):
        total += len(part)
        assert len(part) <= _BLOCK_NBYTES, "a piece larger than a block"
        assert total <= decoded_nbytes, "more than the signed length"
    assert total == decoded_nbytes, "accepted with another length"


def run_sealed(data: bytes) -> None:
    """Signed bytes that claim to be sealed chunks: only what was sealed in its place opens."""
    if len(data) < core_format.TAG_NBYTES:
        raise NoInput
    resource = _sealed_resource(data)
    path = scratch() / "sealed"
    path.write_bytes(data)
    output = bytearray(resource.decoded_nbytes)
    open_sealed(path, resource, _SEALING_KEY, memoryview(output))
    assert seal(bytes(output)) == data, "a forged chunk opened"


_SEALING_KEY: Final = bytes(range(100, 132))


def _sealed_resource(data: bytes) -> SealedResource:
    digests = tuple(core_format.chunk_digests(data))
    decoded = len(data) - core_format.TAG_NBYTES * len(digests)
    return SealedResource("r", ResourceKind.MODULE, decoded, bytes(range(8)), digests)


def seal(content: bytes) -> bytes:
    """One sealed chunk, as the target expects it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    resource = _sealed_resource(content + bytes(core_format.TAG_NBYTES))
    nonce, bound = chunk_nonce(resource, 0), chunk_associated_data(resource, 0)
    return AESGCM(_SEALING_KEY).encrypt(nonce, content, bound)


def run_locations(data: bytes) -> None:
    """A location set: nothing outside of the core's folder is ever a candidate, and a damaged one
    is no reason for a refusal."""
    folder = copy_of("payload-2")
    (folder / core_format.LOCATIONS_FILE).write_bytes(data)
    try:
        locations = Locations(folder)
    except HeliosError as error:
        raise AssertionError("a location set was refused") from error
    for resource in stored("payload-2").decoded.executables.values():
        for candidate in locations.candidates(resource.id, resource.content_name):
            if candidate.path is not None:
                inside = os.path.realpath(candidate.path).startswith(f"{folder.resolve()}/")
                assert inside, "a location outside of the folder"


def run_mirror(data: bytes) -> None:
    """The first line is a mirror's URL, the rest what the mirror answers to every request."""
    url, _, answer = data.partition(b"\n")
    found: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        found.append(host)
        return [_PRIVATE_ADDRESS if host.startswith("private") else _PUBLIC_ADDRESS]

    client = _client()
    client._endpoints = Endpoints(look_up)
    client._pool = httpcore.ConnectionPool(network_backend=_Answering(answer))
    try:
        content = client.read_range(url.decode("utf-8", "replace"), 16, _RANGE_NBYTES, 4096)
    finally:
        client._pool.close()
    assert len(content) == _RANGE_NBYTES, "another length than the one asked for"
    assert not any(host.startswith("private") for host in found), "led into a private network"


@cache
def _client() -> MirrorClient:
    """Made once. No certificate is looked at: the network here has none."""
    tls = ssl.create_default_context()
    return MirrorClient(Endpoints(), Patience(redirects=3), tls, allow_private=False)


_RANGE_NBYTES: Final = 8
_PUBLIC_ADDRESS: Final = "93.184.216.34"
_PRIVATE_ADDRESS: Final = "10.0.0.1"


class _Answering(httpcore.MockBackend):
    """A network in which everybody always gives the same answer."""

    def __init__(self, answer: bytes) -> None:
        super().__init__([])
        self._answer = answer

    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        return httpcore.MockStream([self._answer])
