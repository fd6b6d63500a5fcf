"""Keys, entries and contents that tests of the tiers use."""

from __future__ import annotations

import hashlib

from helios.scheduler.cache.offload.keys import Entry, KeyChain

CHAIN = KeyChain(
    core_digest=b"core", target="cpu", kernel_path="cpu/portable", layout_digest=b"layout"
)


def page(number: int, nbytes: int = 100) -> Entry:
    return Entry(hashlib.sha256(b"%d" % number).digest(), nbytes)


def state(number: int, node: int, length: int, nbytes: int = 100) -> Entry:
    return Entry(page(number).key, nbytes, page(node).key, length)


def content_of(entry: Entry) -> bytes:
    """Bytes that belong to the entry alone."""
    return (entry.key * (entry.nbytes // 32 + 1))[: entry.nbytes]
