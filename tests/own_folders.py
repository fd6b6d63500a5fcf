"""Keeps tests out of the user's folders: trust store and cache are of the test run alone.

The trust store knows the keys that tests sign with, so that tests of other things need say nothing
about it. A pytest plugin, loaded for every run; child processes inherit it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core.trust import TrustedPublisher, TrustStore

# Private keys that tests sign with, and the namespaces that they sign for.
KEYS = (bytes(32), bytes(range(32)))
NAMESPACES = ("tests", "tests/publisher")


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HELIOS_TRUST", str(folder / "trust.json"))
        patch.setenv("HELIOS_CACHE", str(folder / "cache"))
        store = TrustStore()
        for private in KEYS:
            key = Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
            for namespace in NAMESPACES:
                store.add(TrustedPublisher(namespace, key))
        yield
