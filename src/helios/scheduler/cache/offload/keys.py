"""Names for content that outlives a page or a row: a hash of everything that determines it.

A page's bytes follow from the model, the way it is computed, how the cache is laid out, and all
tokens up to the page's end. So a page's key is a hash of its parent's key and its own tokens, and
the chain begins with the rest. Equal keys mean equal bytes, in any process at any time.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from helios.dataclass import dataclass
from helios.version import VERSION

KEY_NBYTES = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of content: its key and its size. A snapshot's entry also says after which page's
    key (`node`) and how many tokens (`length`, fewer than a page) it is; a page's `node` is empty.
    """

    key: bytes
    nbytes: int
    node: bytes = b""
    length: int = 0


class KeyChain:
    """Keys of one loaded model: `core_digest` names the core, `target` and `kernel_path` the way
    it runs, `layout_digest` what a page's and a snapshot's bytes are."""

    def __init__(
        self, *, core_digest: bytes, target: str, kernel_path: str, layout_digest: bytes
    ) -> None:
        parts = (core_digest, target.encode(), kernel_path.encode(), layout_digest)
        # Kernels may change with the version, and with them the last bits of what they compute.
        self._origin = _digest(b"origin", *parts, VERSION.encode())

    def root(self, identity: bytes) -> bytes:
        """The key that the chains of a cache identity begin with."""
        return _digest(b"root", self._origin, identity)

    def page(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        """The key of a page of `tokens` after the one with the key `parent`, or after the root."""
        return hashlib.sha256(b"page" + parent + _token_bytes(tokens)).digest()

    def snapshot(self, node: bytes, partial: Sequence[int]) -> bytes:
        """The key of a snapshot `partial` tokens after a page, or after the root."""
        return hashlib.sha256(b"state" + node + _token_bytes(partial)).digest()


def _token_bytes(tokens: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)


def _digest(*parts: bytes) -> bytes:
    """Of parts whose borders matter."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(struct.pack("<I", len(part)))
        hashed.update(part)
    return hashed.digest()
