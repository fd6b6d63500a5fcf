"""Hostile envelopes, and hostile messages that are signed well."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache

from fuzz.stored import (
    KEY,
    PUBLIC_KEY,
    copy_of,
    open_stored,
    scratch,
    stored_envelope,
)
from helios.core import format as core_format
from helios.core.envelope import read_envelope
from helios.errors import HeliosError
from helios.schema import core_pb2


def run_envelope(data: bytes) -> None:
    """A file in the place of `core.pb`: whatever passes was signed by the key that it names."""
    path = scratch() / "envelope.pb"
    path.write_bytes(data)
    verified = read_envelope(path, PUBLIC_KEY)
    signed = {hashlib.sha256(envelope.body or envelope.index).hexdigest() for envelope in _signed()}
    assert verified.digest in signed, "an altered envelope passed"


@cache
def _signed() -> list[core_pb2.SignedEnvelope]:
    return [stored_envelope(name) for name in ("payload-2", "index-6", "index-4")]


def run_body(data: bytes) -> None:
    """A payload core's body, signed, over the files of a good core."""
    signature = KEY.sign(core_format.SIGNATURE_DOMAIN + data)
    _open_all(
        "payload-2", core_pb2.SignedEnvelope(body=data, public_key=PUBLIC_KEY, signature=signature)
    )


def run_index(data: bytes) -> None:
    """A logical-resource core's index, version 6, signed, over the files of a good core."""
    _open_index("index-6", data)


def run_sealed_index(data: bytes) -> None:
    """A logical-resource core's index, version 4, signed, over the files of a good core."""
    _open_index("index-4", data)


def _open_index(name: str, data: bytes) -> None:
    signature = KEY.sign(core_format.INDEX_SIGNATURE_DOMAIN + data)
    _open_all(name, core_pb2.SignedEnvelope(index=data, public_key=PUBLIC_KEY, signature=signature))


def _open_all(name: str, envelope: core_pb2.SignedEnvelope) -> None:
    """Opens a core and reads everything in it that can be read. What comes out has its signed
    length."""
    folder = copy_of(name)
    (folder / core_format.ENVELOPE_FILE).write_bytes(envelope.SerializeToString())
    core = open_stored(name, folder)
    for resource in core.decoded.executables.values():
        with suppress(HeliosError):
            assert len(core.read_resource(resource.id, resource.kind)) == resource.decoded_nbytes
    for weights in core.decoded.weights.values():
        with suppress(HeliosError):
            core.map_weights(weights.id).close()
