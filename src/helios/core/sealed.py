"""Sealed resources: AES-256-GCM chunks, authenticated one by one while they are decrypted.

A chunk's nonce and associated data say which chunk of which resource it is, so that content only
opens in its own place and under the core's own key. The signed digests of the stored chunks are
checked first: whoever holds the key can seal other content, but not sign it. Keys live here too.
`opened_core` is the caller.
"""

from __future__ import annotations

import binascii
import hmac
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from helios.core.chunks import SignedContentError, open_content, verified_chunk, worker_count
from helios.core.files import open_regular, read_exactly
from helios.core.format import CORE_KEY_NBYTES, SEALED_STEP_NBYTES, TAG_NBYTES
from helios.core.resources import SealedResource
from helios.errors import CoreError

_KEY_ID_DOMAIN: Final = b"helios.core.key\x00"
_CHUNK_DOMAIN: Final = b"helios.core.chunk\x00"
_KEY_FILE_LIMIT_NBYTES: Final = 1024


def read_core_key(path: Path) -> bytes:
    """The 32-byte key in a file, raw or as 64 hexadecimal digits. Raises CoreError naming the
    file; the key is never part of a message."""
    with open_regular(path) as file:
        content = read_exactly(file, min(file.seek(0, 2), _KEY_FILE_LIMIT_NBYTES))
    if len(content) == CORE_KEY_NBYTES:
        return content
    digits = content.strip()
    if len(digits) == 2 * CORE_KEY_NBYTES:
        with suppress(binascii.Error):
            return binascii.unhexlify(digits)
    raise CoreError(
        "holds no core key",
        where=str(path),
        remedy=f"Give a file of {CORE_KEY_NBYTES} bytes, or of {2 * CORE_KEY_NBYTES} hex digits",
    )


def key_id(key: bytes) -> bytes:
    """What a sealed core's index says about its key: 32 bytes that don't tell the key."""
    return hmac.digest(key, _KEY_ID_DOMAIN, "sha256")


def chunk_nonce(resource: SealedResource, number: int) -> bytes:
    """The 12-byte nonce of a chunk: the resource's prefix and the chunk's index."""
    return resource.nonce_prefix + struct.pack(">I", number)


def chunk_associated_data(resource: SealedResource, number: int) -> bytes:
    """What a chunk's tag authenticates besides its bytes: which resource this is, of which kind
    and length, in how many chunks, and which of them."""
    name = resource.id.encode()
    return _CHUNK_DOMAIN + struct.pack(
        f">I{len(name)}sIQII",
        len(name),
        name,
        resource.kind,
        resource.decoded_nbytes,
        len(resource.chunk_sha256),
        number,
    )


def open_sealed(path: Path, resource: SealedResource, key: bytes, output: memoryview) -> None:
    """Decrypts a resource into `output`, its decoded length. Raises as `check_sealed`; `output` is
    then not to be used."""

    def keep(number: int, content: bytes) -> None:
        start = number * SEALED_STEP_NBYTES
        output[start : start + len(content)] = content

    _open_chunks(path, resource, key, keep)


def check_sealed(
    path: Path, resource: SealedResource, key: bytes, advance: Callable[[int], None]
) -> None:
    """Authenticates a resource and keeps nothing; `advance` is told the stored bytes of each chunk
    that is done, from any thread.

    Raises CoreError naming the file and a chunk that isn't what was signed, SignedContentError
    naming the first chunk that is signed but wasn't sealed there.
    """
    _open_chunks(path, resource, key, lambda _, content: advance(len(content) + TAG_NBYTES))


def _open_chunks(
    path: Path, resource: SealedResource, key: bytes, take: Callable[[int, bytes], None]
) -> None:
    """Hands each chunk's number and content to `take`, on all cores; each holds one chunk."""
    cipher = AESGCM(key)

    def open_chunk(file: BinaryIO, number: int) -> None:
        stored = verified_chunk(file, resource, number)
        try:
            content = cipher.decrypt(
                chunk_nonce(resource, number), stored, chunk_associated_data(resource, number)
            )
        except InvalidTag:
            raise SignedContentError(
                f"chunk {number} doesn't authenticate: it isn't chunk {number} of this resource,"
                " sealed with this key",
                where=f"resource {resource.id!r}",
                remedy="The publisher has to make the core again",
            ) from None
        take(number, content)

    with open_content(path, resource) as file, ThreadPoolExecutor(worker_count()) as pool:
        opened = [
            pool.submit(open_chunk, file, number) for number in range(len(resource.chunk_sha256))
        ]
        try:
            for chunk in opened:
                chunk.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
