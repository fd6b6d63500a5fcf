"""Prepares a core again from what it says about how it was made, and compares the two.

The rebuild manifest is part of the signed body and is read here alone: serving ignores it. The
command line calls `rebuild`; so do tests.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import OpenedCore, open_core, read_folder
from helios.core.envelope import VerifiedEnvelope
from helios.core.format import INDEX_VERSION_FRAMES, INDEX_VERSION_SEALED
from helios.errors import CoreError
from helios.schema import core_pb2
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import SourceFile
from ignition.preparation.comparison import Comparison, compare
from ignition.preparation.errors import CheckpointError
from ignition.preparation.prepare import Progress, prepare
from ignition.preparation.recorded_options import recorded_options


def rebuild(
    core: Path,
    checkpoint: Path,
    progress: Progress,
    *,
    destination: Path | None = None,
    key: Ed25519PrivateKey | None = None,
    core_key: bytes | None = None,
) -> Comparison:
    """Prepares `core` again from `checkpoint` and compares everything but the signature, which is
    verified under the key in the core.

    The new core stays at `destination`, if there is one, signed with `key`. A sealed core, which
    nothing here can write, opens with `core_key`, is compared by its content and has no
    destination. Raises a HeliosError where the core is damaged or says too little, or where the
    checkpoint isn't the one it was made of.
    """
    envelope = read_folder(core, None)
    options = recorded_options(envelope, str(core))
    if destination is not None:
        _check_writable(envelope, str(core))
    opened = _open(core, options.namespace, envelope.public_key, core_key)
    with progress.stage("reading the checkpoint"):
        sources = open_checkpoint(checkpoint).sources
    _check_sources(opened.deployment.rebuild.sources, sources, str(checkpoint))
    with tempfile.TemporaryDirectory(prefix="ignition-rebuild-") as scratch:
        # Where the new core isn't wanted, nobody keeps the key either.
        again = destination or Path(scratch) / "core"
        key = key or Ed25519PrivateKey.generate()
        prepare(checkpoint, again, options, key, progress)
        public_key = key.public_key().public_bytes_raw()
        return compare(opened, _open(again, options.namespace, public_key), envelope)


def _open(
    core: Path, namespace: str, public_key: bytes, core_key: bytes | None = None
) -> OpenedCore:
    """Opens a core to compare it, not to serve it: whom the operator trusts doesn't matter."""
    return open_core(core, accept=namespace, publisher_key=public_key, core_key=core_key)


def _check_writable(envelope: VerifiedEnvelope, where: str) -> None:
    """Raises CoreError for a format that is only read."""
    body = envelope.body
    if isinstance(body, core_pb2.ProtectedIndex) and body.version == INDEX_VERSION_SEALED:
        raise CoreError(
            f"Ignition reads index version {INDEX_VERSION_SEALED} and doesn't write it, so the"
            " core can't be made again byte for byte",
            where=where,
            remedy="Compare its content with --check --core-key FILE; `ignition prepare` makes a"
            f" payload core or index version {INDEX_VERSION_FRAMES} of the checkpoint",
        )


def _check_sources(recorded: Any, found: tuple[SourceFile, ...], where: str) -> None:
    """Raises CheckpointError naming the first file that isn't what the core was made of."""
    expected = {source.name: (source.nbytes, source.sha256) for source in recorded}
    actual = {source.name: (source.nbytes, source.sha256) for source in found}
    for name in sorted(expected.keys() | actual.keys()):
        if expected.get(name) == actual.get(name):
            continue
        if name not in actual:
            what = f"{name} is missing, of which the core was made"
        elif name not in expected:
            what = f"{name} is no file of which the core was made"
        else:
            what = f"{name} differs from the file of which the core was made"
        raise CheckpointError(what, where=where, remedy="Give the checkpoint it was made of")
