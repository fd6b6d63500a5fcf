"""Authorization: the operator accepts a publisher by name, and knows the key that signed.

The signature proves that whoever has the key made the core. Two things it can't prove are decided
here: that the operator takes this publisher's licence terms (acceptance repeats the signed
namespace, exactly), and that the key is that publisher's (the trust store, a pinned key, or an
explicit word that it needn't be). `opened_core` is the caller.
"""

from __future__ import annotations

import shlex
from enum import StrEnum

from helios.core.trust import Publishers, TrustedPublisher, TrustStore
from helios.dataclass import dataclass
from helios.errors import CoreError
from helios.wording import show_name


class Trust(StrEnum):
    """Why the signing key was taken."""

    PINNED = "pinned"
    STORE = "trusted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was accepted, for the record."""

    namespace: str
    licence_terms: str
    public_key: bytes
    trust: Trust


def authorize(
    accept: str,
    *,
    namespace: str,
    licence_terms: str,
    public_key: bytes,
    pinned: bool,
    allow_unknown_publisher: bool,
    store: TrustStore,
    where: str,
) -> Acceptance:
    """Raises CoreError unless `accept` is the namespace, code point by code point, and the key is
    `pinned` (already held against a given one), trusted for the namespace, or allowed unknown."""
    if accept != namespace:
        raise CoreError(
            f"is published by {show_name(namespace)}, but {show_name(accept)} was accepted",
            where=where,
            remedy=f"If you trust this publisher and take its terms, accept {namespace!r}",
        )
    if pinned:
        trust = Trust.PINNED
    else:
        publishers = store.publishers()
        if TrustedPublisher(namespace, public_key) in publishers:
            trust = Trust.STORE
        elif allow_unknown_publisher:
            trust = Trust.UNKNOWN
        else:
            raise _unknown(namespace, public_key, publishers, where)
    return Acceptance(namespace, licence_terms, public_key, trust)


def _unknown(namespace: str, key: bytes, publishers: Publishers, where: str) -> CoreError:
    other_keys = sorted(p.key.hex() for p in publishers if p.namespace == namespace)
    other_names = sorted(p.namespace for p in publishers if p.key == key)
    signed = f"is signed as {show_name(namespace)} by the key {key.hex()}"
    if other_keys:
        what = (
            f"{signed}, but you trust {namespace!r} with another key ({', '.join(other_keys)}):"
            " somebody else may be using the name"
        )
    elif other_names:
        names = ", ".join(map(show_name, other_names))
        what = f"{signed}, which you trust for {names} only"
    else:
        what = f"{signed}, which you haven't trusted yet"
    return CoreError(
        what,
        where=where,
        remedy=f"{_how_to_trust(namespace, key)}; --allow-unknown-publisher takes it as it is",
    )


def _how_to_trust(namespace: str, key: bytes) -> str:
    if not namespace.isprintable():
        return "Its namespace has characters that can't be shown, which speaks against trusting it"
    command = f"helios trust add {key.hex()} --namespace={shlex.quote(namespace)}"
    return f"If the publisher told you this key, run `{command}`"
