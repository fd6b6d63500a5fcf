"""Keys: equal only where everything is that determines a content."""

from __future__ import annotations

import hashlib
import itertools
import struct

from helios.scheduler.cache.offload.keys import KeyChain
from helios.version import VERSION

PARTS = {
    "core_digest": b"core",
    "target": "cpu",
    "kernel_path": "cpu/avx2",
    "layout_digest": b"layout",
}


def test_a_chain_depends_on_everything_that_bytes_depend_on() -> None:
    chains = [KeyChain(**PARTS)]  # type: ignore[arg-type]
    for name, value in PARTS.items():
        other = value + b"2" if isinstance(value, bytes) else value + "2"
        chains.append(KeyChain(**{**PARTS, name: other}))  # type: ignore[arg-type]
    # Borders between the parts count.
    chains.append(KeyChain(**{**PARTS, "target": "cpuc", "kernel_path": "pu/avx2"}))  # type: ignore[arg-type]
    roots = [chain.root(identity) for chain in chains for identity in (b"", b"adapter")]
    keys = [chains[0].page(root, (1, 2)) for root in roots]
    assert len({*roots, *keys}) == 4 * len(chains)
    assert KeyChain(**PARTS).root(b"") == roots[0]  # type: ignore[arg-type]


def test_keys_depend_on_every_token_before_and_on_what_they_name() -> None:
    chain = KeyChain(**PARTS)  # type: ignore[arg-type]
    root = chain.root(b"")
    keys = set()
    for first, second in itertools.product([(1, 2), (2, 1), (1, 3)], repeat=2):
        parent = chain.page(root, first)
        keys |= {parent, chain.page(parent, second), chain.snapshot(parent, second)}
        keys |= {chain.snapshot(parent, second[:1]), chain.snapshot(parent, ())}
    # 3 first pages; under each 3 pages, 3 + 2 + 1 snapshots.
    assert len(keys) == 3 + 3 * (3 + 6)


def test_the_chain_is_sha256_over_little_endian_tokens() -> None:
    """So that a key means the same on every machine."""
    chain = KeyChain(**PARTS)  # type: ignore[arg-type]
    origin = hashlib.sha256()
    for part in (b"origin", b"core", b"cpu", b"cpu/avx2", b"layout", VERSION.encode()):
        origin.update(len(part).to_bytes(4, "little") + part)
    root = hashlib.sha256()
    for part in (b"root", origin.digest(), b"x"):
        root.update(len(part).to_bytes(4, "little") + part)
    assert chain.root(b"x") == root.digest()
    page = hashlib.sha256(b"page" + root.digest() + struct.pack("<3I", 7, 0, 2**32 - 1)).digest()
    assert chain.page(root.digest(), [7, 0, 2**32 - 1]) == page
