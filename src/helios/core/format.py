"""Constants and names of the core format, shared by the reader here and by Ignition's writer.

No file is touched here. What the parts mean: docs/core-format.md; their messages:
schema/core.proto.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

# Versions of the two carriers, each a domain of its own.
FORMAT_VERSION: Final = 2
INDEX_VERSION_FRAMES: Final = 6
INDEX_VERSION_SEALED: Final = 4

ENVELOPE_FILE: Final = "core.pb"
# What a folder has instead that lacks weights: Ignition makes a core of it.
DRAFT_FILE: Final = "draft.pb"
LOCATIONS_FILE: Final = "locations.pb"
RESOURCE_FOLDER: Final = "resources"

# Ed25519 signs the carrier's prefix followed by the serialized body or index, so that a signature
# made for anything else, the other carrier included, never validates a core.
SIGNATURE_DOMAIN: Final = b"helios.core.payload\x00"
INDEX_SIGNATURE_DOMAIN: Final = b"helios.core.logical\x00"
PUBLIC_KEY_NBYTES: Final = 32
SIGNATURE_NBYTES: Final = 64
SHA256_NBYTES: Final = 32

CHUNK_NBYTES: Final = 4 << 20
WEIGHT_ALIGNMENT: Final = 4096
ZSTD_LEVEL: Final = 3
WINDOW_LIMIT_NBYTES: Final = 8 << 20

# Sealed resources: AES-256-GCM chunks. A chunk's nonce is its resource's prefix and its index.
CORE_KEY_NBYTES: Final = 32
TAG_NBYTES: Final = 16
SEALED_STEP_NBYTES: Final = CHUNK_NBYTES - TAG_NBYTES  # content of a sealed chunk
NONCE_PREFIX_NBYTES: Final = 8

# Upper bounds that hold before anything is read or allocated.
ENVELOPE_LIMIT_NBYTES: Final = 64 << 20
NAMESPACE_LIMIT: Final = 256  # characters
LOCATIONS_LIMIT_NBYTES: Final = 1 << 20
LOCATION_URIS_LIMIT: Final = 16  # of one resource
DECODED_LIMIT_NBYTES: Final = 1 << 30
WEIGHT_LIMIT_NBYTES: Final = 1 << 42


def chunk_count(nbytes: int) -> int:
    """Number of commitments that `nbytes` bytes need: one a started chunk."""
    return -(-nbytes // CHUNK_NBYTES)


def chunk_digests(content: bytes | memoryview) -> list[bytes]:
    """SHA-256 of each chunk of `content`, in order."""
    view = memoryview(content)
    return [
        hashlib.sha256(view[start : start + CHUNK_NBYTES]).digest()
        for start in range(0, len(view), CHUNK_NBYTES)
    ]


def sealed_chunk_count(decoded_nbytes: int) -> int:
    """Number of sealed chunks, each stored in a chunk with its tag. Nothing takes one chunk too,
    so that a tag says that it is nothing."""
    return max(1, -(-decoded_nbytes // SEALED_STEP_NBYTES))


def frame_content_name(stored_sha256: bytes) -> str:
    """File name of an executable resource: the hex digest of its compressed bytes."""
    return stored_sha256.hex()


def weight_content_name(digests: Iterable[bytes]) -> str:
    """File name of a weight or sealed resource: hex SHA-256 over its chunk digests in order.

    Both kinds of names follow from signed data alone, so a core whose location set is lost or
    damaged can still be opened from its resource folder.
    """
    return hashlib.sha256(b"".join(digests)).hexdigest()


def resource_uri(content_name: str) -> str:
    """Location of a resource file beside the envelope, relative to the core's folder."""
    return f"file:{RESOURCE_FOLDER}/{content_name}"
