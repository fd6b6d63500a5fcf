"""Sealed resources: AES-256-GCM chunks, authenticated one by one while they are decrypted.

A chunk's nonce and associated data say which chunk of which resource it is, so that content only
opens in its own place and under the core's own key. The signed digests of the stored chunks are
checked too: whoever holds the key can seal other content, but not sign it. Chunks are read, hashed
and decrypted in pieces, so memory holds two pieces a core beside the output. Keys live here too.
`opened_core` is the caller.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from helios.core.chunks import (
    PIECE_NBYTES,
    SignedContentError,
    chunk_nbytes,
    damaged,
    open_content,
    read_on_all_cores,
)
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
    _open_chunks(path, resource, key, output)


def check_sealed(
    path: Path, resource: SealedResource, key: bytes, advance: Callable[[int], None]
) -> None:
    """Authenticates a resource and keeps nothing; `advance` is told the stored bytes of each chunk
    that is done, from any thread.

    Raises CoreError naming the file and a chunk that isn't what was signed, SignedContentError
    naming the first chunk that is signed but wasn't sealed there.
    """
    _open_chunks(path, resource, key, None, advance)


def _open_chunks(
    path: Path,
    resource: SealedResource,
    key: bytes,
    output: memoryview | None,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Decrypts on all cores, each a piece at a time, into `output` or to see whether it works."""
    refused: dict[int, CoreError] = {}

    def take(number: int, pieces: Iterator[memoryview]) -> bool:
        place = None if output is None else output[number * SEALED_STEP_NBYTES :]
        error = _open_chunk(resource, number, key, pieces, place, str(path))
        if error is not None:
            refused[number] = error
        return not refused

    with open_content(path, resource) as file:
        read_on_all_cores(file, resource, range(len(resource.chunk_sha256)), take, advance)
    if refused:
        # Chunks are handed out in order, so every chunk before this one was looked at too.
        raise refused[min(refused)]


def _open_chunk(
    resource: SealedResource,
    number: int,
    key: bytes,
    pieces: Iterator[memoryview],
    place: memoryview | None,
    where: str,
) -> CoreError | None:
    """Decrypts a chunk to `place`; what is wrong with it, or None. Digest and tag are known at its
    end only, so nobody is given its content before."""
    cipher = Cipher(AES(key), GCM(chunk_nonce(resource, number))).decryptor()
    cipher.authenticate_additional_data(chunk_associated_data(resource, number))
    into = memoryview(bytearray(PIECE_NBYTES)) if place is None else place
    digest = hashlib.sha256()
    left_nbytes = chunk_nbytes(resource, number) - TAG_NBYTES
    position, tag = 0, b""
    for piece in pieces:
        digest.update(piece)
        sealed = piece[:left_nbytes]
        if sealed:
            cipher.update_into(sealed, into if place is None else into[position:])
        tag += piece[len(sealed) :]
        position += len(sealed)
        left_nbytes -= len(sealed)
    if digest.digest() != resource.chunk_sha256[number]:
        return damaged(number, where)
    try:
        cipher.finalize_with_tag(tag)
    except InvalidTag:
        return SignedContentError(
            f"chunk {number} doesn't authenticate: it isn't chunk {number} of this resource,"
            " sealed with this key",
            where=f"resource {resource.id!r}",
            remedy="The publisher has to make the core again",
        )
    return None
