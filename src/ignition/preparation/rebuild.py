"""Prepares a core again from what it says about how it was made, and compares the two.

The rebuild manifest is part of the signed body and is read here alone: serving ignores it. The
command line calls `rebuild`; so do tests.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import OpenedCore, open_core, read_folder
from helios.core.body import decode_body
from helios.core.envelope import VerifiedEnvelope
from helios.core.format import INDEX_VERSION_FRAMES
from helios.errors import ContractError, CoreError
from helios.schema import core_pb2
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import SourceFile
from ignition.preparation.comparison import Comparison, compare
from ignition.preparation.errors import CheckpointError
from ignition.preparation.export import Carrier
from ignition.preparation.options import OPTIONAL_PROGRAMS, TUNING_ON, Options
from ignition.preparation.prepare import Progress, prepare
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.sampling import parse as parse_sampling
from ignition.preparation.serving import REBUILD_VERSION

_OPTIONS: Final = {"storage", "target", "max_active", "prefill", "decode", "max_context"}
_ONLY_WHERE_GIVEN: Final = {"sampling", "tuning", *OPTIONAL_PROGRAMS}


def rebuild(
    core: Path,
    checkpoint: Path,
    progress: Progress,
    *,
    destination: Path | None = None,
    key: Ed25519PrivateKey | None = None,
) -> Comparison:
    """Prepares `core` again from `checkpoint` and compares everything but the signature, which is
    verified under the key in the core.

    The new core stays at `destination`, if there is one, signed with `key`. Raises a HeliosError
    where the core is damaged or says too little, or where the checkpoint isn't the one it was made
    of.
    """
    envelope = read_folder(core, None)
    options = recorded_options(envelope, str(core))
    opened = _open(core, options.namespace, envelope.public_key)
    with progress.stage("reading the checkpoint"):
        sources = open_checkpoint(checkpoint).sources
    _check_sources(opened.deployment.rebuild.sources, sources, str(checkpoint))
    with tempfile.TemporaryDirectory(prefix="ignition-rebuild-") as scratch:
        # Where the new core isn't wanted, nobody keeps the key either.
        again = destination or Path(scratch) / "core"
        key = key or Ed25519PrivateKey.generate()
        prepare(checkpoint, again, options, key, progress)
        public_key = key.public_key().public_bytes_raw()
        return compare(opened, _open(again, options.namespace, public_key))


def _open(core: Path, namespace: str, public_key: bytes) -> OpenedCore:
    """Opens a core to compare it, not to serve it: whom the operator trusts doesn't matter."""
    return open_core(core, accept=namespace, publisher_key=public_key)


def recorded_options(envelope: VerifiedEnvelope, where: str) -> Options:
    """What the core was prepared with. Raises CoreError where it doesn't say, or says it in a way
    that this version doesn't know."""
    decoded = decode_body(envelope.body)
    message = decoded.deployment
    if not message.HasField("rebuild"):
        raise CoreError("has no rebuild manifest", where=where, remedy="It can't be rebuilt")
    manifest = message.rebuild
    if manifest.version != REBUILD_VERSION:
        raise CoreError(
            f"rebuild manifest version {manifest.version} is not supported",
            where=where,
            remedy=f"This Ignition reads version {REBUILD_VERSION}",
        )
    other = sorted((manifest.options.keys() - _ONLY_WHERE_GIVEN) ^ _OPTIONS)
    if other:
        raise CoreError(
            f"its rebuild manifest has other options than this Ignition knows: {', '.join(other)}",
            where=where,
            remedy="Rebuild it with the Ignition that made it",
        )
    return _options(decoded, manifest, _carrier(envelope, where), where)


def _options(decoded: Any, manifest: Any, carrier: Carrier, where: str) -> Options:
    contract, texts = decoded.deployment.contract, manifest.options
    try:
        return Options(
            namespace=decoded.namespace,
            served_id=contract.served_id,
            aliases=tuple(contract.aliases),
            licence_terms=decoded.licence_terms,
            recipe=manifest.recipe,
            storage=WeightStorage(texts["storage"]),
            target=texts["target"],
            carrier=carrier,
            max_active=int(texts["max_active"]),
            prefill=_capacities(texts["prefill"]),
            decode=_capacities(texts["decode"]),
            max_context=int(texts["max_context"]),
            sampling=parse_sampling(dict(texts).get("sampling", "")),
            tuning=_is_on(dict(texts).get("tuning")),
            mixed=_capacities(dict(texts).get("mixed")),
            scored_prefill=_capacities(dict(texts).get("scored_prefill")),
            restore=_capacities(dict(texts).get("restore")),
        )
    except (ValueError, ContractError) as error:
        raise CoreError(f"its rebuild manifest is damaged ({error})", where=where) from None


def _is_on(text: str | None) -> bool:
    """Whether an option that is only said where it is on is on."""
    if text not in (None, TUNING_ON):
        raise ValueError(f"tuning is {text!r}")
    return text is not None


def _capacities(text: str | None) -> tuple[int, ...]:
    """A list; of programs that the core doesn't say it has, the empty one."""
    return () if text is None else tuple(int(part) for part in text.split(","))


def _carrier(envelope: VerifiedEnvelope, where: str) -> Carrier:
    if isinstance(envelope.body, core_pb2.CoreBody):
        return Carrier.PAYLOAD
    if envelope.body.version == INDEX_VERSION_FRAMES:
        return Carrier.LOGICAL
    raise CoreError(
        f"Ignition doesn't write index version {envelope.body.version}",
        where=where,
        remedy=f"Index version {INDEX_VERSION_FRAMES} and payload cores can be rebuilt",
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
