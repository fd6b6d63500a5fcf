"""Values of command-line options that need reading: key files."""

from __future__ import annotations

from pathlib import Path

from helios.errors import CoreError


def read_public_key(path: Path) -> bytes:
    """The raw 32 bytes of an Ed25519 public key file (PEM). Raises CoreError naming the file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    remedy = "Give the publisher's .pub file, as `ignition keygen` writes it"
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise CoreError(
            f"can't be read: {error.strerror}", where=str(path), remedy=remedy
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CoreError("is no public key in PEM", where=str(path), remedy=remedy) from error
    if not isinstance(key, Ed25519PublicKey):
        raise CoreError("is no Ed25519 key", where=str(path), remedy=remedy)
    return key.public_bytes_raw()
