"""Values of command-line options that need reading: sizes and key files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from helios.errors import CoreError, HeliosError

_SIZE: Final = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kmgt]?i?b?)", re.IGNORECASE)
_EXPONENTS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes of a size like `2GiB` (powers of 1024), `500MB` (of 1000) or `123456`. Raises
    HeliosError for anything else."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise HeliosError(
            f"{text!r} is no size", where="--cache-memory", remedy="Write it like 2GiB or 500MB"
        )
    unit = found["unit"].lower()
    base = 1000 if unit.endswith("b") and "i" not in unit else 1024
    return int(float(found["number"]) * base ** _EXPONENTS[unit.rstrip("ib")])


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
