"""An opened core: signature verified, publisher accepted, contract decoded, resources at hand.

`open_core` is the one way in. Resources are read when asked for, each checked against its signed
commitments before a byte of it is used, from the first location whose content is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from helios.contract import PreparedContract, decode
from helios.core.authorize import Acceptance, authorize
from helios.core.body import (
    DecodedBody,
    DeploymentTarget,
    FrameResource,
    ResourceKind,
    WeightResource,
    decode_body,
)
from helios.core.envelope import VerifiedEnvelope, read_envelope
from helios.core.files import open_regular, read_exactly
from helios.core.format import ENVELOPE_FILE
from helios.core.locations import Locations
from helios.core.weights import WeightMap, map_file
from helios.errors import CoreError
from helios.schema import core_pb2

Content = TypeVar("Content")


class OpenedCore:
    """Made by `open_core`. `digest` (hex SHA-256 of the signed body) identifies the core."""

    def __init__(
        self,
        folder: Path,
        envelope: VerifiedEnvelope,
        decoded: DecodedBody,
        acceptance: Acceptance,
        contract: PreparedContract,
    ) -> None:
        self.folder = folder
        self.body: core_pb2.CoreBody = envelope.body
        self.digest = envelope.digest
        self.acceptance = acceptance
        self.contract = contract
        self.decoded = decoded
        self._locations = Locations(folder)

    @property
    def targets(self) -> Mapping[str, DeploymentTarget]:
        """The core's targets by name."""
        return self.decoded.targets

    def read_resource(self, resource: str, kind: ResourceKind) -> bytes:
        """The decoded content of an executable resource of that kind. Raises CoreError."""
        found = self.decoded.frames.get(resource)
        if found is None:
            raise CoreError("the core has no such executable resource", where=f"{resource!r}")
        if found.kind is not kind:
            raise CoreError(
                f"is {found.kind.name}, not {kind.name}", where=f"resource {resource!r}"
            )
        # Imported on use: a core can be inspected without the decompressor.
        from helios.core.frames import check_stored, decode_frame

        def read(path: Path) -> bytes:
            with open_regular(path) as file:
                # One byte more than signed tells a longer file without reading all of it.
                nbytes = min(file.seek(0, 2), found.stored_nbytes + 1)
                stored = read_exactly(file, nbytes)
            check_stored(found, stored, str(path))
            return stored

        return decode_frame(found, self._first_good(found, read))

    def map_weights(self, resource: str, *, verify: bool = True) -> WeightMap:
        """Maps a weight resource. Without `verify` only its length is checked, and only a file
        that has the content's name is taken. Raises CoreError."""
        found = self.decoded.weights.get(resource)
        if found is None:
            raise CoreError("the core has no such weight resource", where=f"{resource!r}")
        content_name = found.content_name

        def read(path: Path) -> WeightMap:
            if not verify and path.name != content_name:
                raise CoreError("is not named by its content, and not verified", where=str(path))
            return map_file(path, found, verify=verify)

        return self._first_good(found, read)

    def _first_good(
        self, resource: FrameResource | WeightResource, read: Callable[[Path], Content]
    ) -> Content:
        """What `read` returns for the first location that it doesn't refuse."""
        reasons = []
        for candidate in self._locations.candidates(resource.id, resource.content_name):
            if candidate.path is None:
                reasons.append(f"{candidate.shown}: {candidate.reason}")
                continue
            try:
                return read(candidate.path)
            except CoreError as error:
                reasons.append(f"{candidate.shown}: {error.what}")
        raise CoreError(
            f"no location has its content ({'; '.join(reasons)})",
            where=f"resource {resource.id!r} of {self.folder}",
            remedy="The core is incomplete or damaged: get it again",
        )


def read_folder(folder: Path, publisher_key: bytes | None) -> VerifiedEnvelope:
    """The verified envelope of a core's folder, nothing accepted yet. Raises CoreError."""
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "there is no such folder"
        raise CoreError(what, where=str(folder), remedy="Give the core's folder")
    return read_envelope(folder / ENVELOPE_FILE, publisher_key)


def open_core(path: str | Path, *, accept: str, publisher_key: bytes | None = None) -> OpenedCore:
    """Opens a core's folder. `accept` must be the signed namespace; `publisher_key` (32 bytes)
    pins the signer. Raises CoreError naming the file or field, ContractError for the contract."""
    folder = Path(path)
    envelope = read_folder(folder, publisher_key)
    decoded = decode_body(envelope.body)
    acceptance = authorize(
        accept,
        namespace=decoded.namespace,
        licence_terms=decoded.licence_terms,
        public_key=envelope.public_key,
        where=str(folder),
    )
    contract = decode(envelope.body.deployment.contract)
    return OpenedCore(folder, envelope, decoded, acceptance, contract)
