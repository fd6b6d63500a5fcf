"""An opened core: signature verified, publisher accepted, contract decoded, resources at hand.

`open_core` is the one way in, for every carrier. Resources are read when asked for, each checked
against its signed commitments before a byte of it is used, from the first location whose content
is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TypeVar

from helios.contract import PreparedContract, decode
from helios.core.authorize import Acceptance, authorize
from helios.core.body import (
    DecodedBody,
    Deployment,
    DeploymentTarget,
    check_claim,
    decode_body,
)
from helios.core.cache import ResourceCache
from helios.core.chunks import SignedContentError, open_content, verified_chunks
from helios.core.envelope import VerifiedEnvelope, read_envelope
from helios.core.format import DRAFT_FILE, ENVELOPE_FILE
from helios.core.locations import Locations
from helios.core.resources import FrameResource, ResourceKind, SealedResource, WeightResource
from helios.core.trust import TrustStore
from helios.core.weights import WeightMap, map_file, map_memory
from helios.errors import CoreError

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
        cache: ResourceCache,
        core_key: bytes | None,
    ) -> None:
        self.folder = folder
        self.digest = envelope.digest
        self.acceptance = acceptance
        self.contract = contract
        self.decoded = decoded
        self._locations = Locations(folder)
        self._cache = cache
        # Set for a sealed core, and then the right one.
        self._core_key = core_key
        # The files that `check_resource` found right, by resource.
        self._checked: dict[str, Path] = {}

    @property
    def deployment(self) -> Deployment:
        """The signed message that holds contract, targets and rebuild manifest."""
        return self.decoded.deployment

    @property
    def targets(self) -> Mapping[str, DeploymentTarget]:
        """The core's targets by name."""
        return self.decoded.targets

    def read_resource(self, resource: str, kind: ResourceKind) -> bytes:
        """The decoded content of an executable resource of that kind. Raises CoreError."""
        found = self.decoded.executables.get(resource)
        if found is None:
            raise CoreError("the core has no such executable resource", where=f"{resource!r}")
        if found.kind is not kind:
            raise CoreError(
                f"is {found.kind.name}, not {kind.name}", where=f"resource {resource!r}"
            )
        if isinstance(found, SealedResource):
            content = bytearray(found.decoded_nbytes)
            self._unseal(found, memoryview(content))
            return bytes(content)
        return self._read_frame(found)

    def _read_frame(self, resource: FrameResource) -> bytes:
        # Imported on use: a core can be inspected without the decompressor.
        from helios.core.frames import decode_frame

        def read(path: Path) -> bytes:
            # Grows as the content comes and gives it out uncopied, where joining pieces would hold
            # it twice.
            content = BytesIO()
            with open_content(path, resource) as file:
                content.writelines(decode_frame(resource, verified_chunks(file, resource)))
            return content.getvalue()

        return self._first_good(resource, read)

    def _unseal(self, resource: SealedResource, output: memoryview) -> None:
        """Decrypts a resource into `output`."""
        # Imported on use: few cores are sealed.
        from helios.core.sealed import open_sealed

        assert self._core_key is not None
        key = self._core_key
        self._first_good(resource, lambda path: open_sealed(path, resource, key, output))

    def map_weights(self, resource: str, *, verify: bool = True, copied: bool = False) -> WeightMap:
        """Maps a weight resource; a sealed one is decrypted into memory, always verified. What is
        only `copied` from there takes no memory of its own, unless it is sealed. Without
        `verify` only a file's length is checked, and only the one that `check_resource` checked is
        taken, or else one that has the content's name. Raises CoreError."""
        found = self.decoded.weights.get(resource)
        if found is None:
            raise CoreError("the core has no such weight resource", where=f"{resource!r}")
        if isinstance(found, SealedResource):
            return self._map_sealed(found)
        content_name = found.content_name
        checked = self._checked.get(resource)
        if checked is not None and not verify:
            return map_file(checked, found, verify=False, copied=copied)

        def read(path: Path) -> WeightMap:
            if not verify and path.name != content_name:
                raise CoreError("is not named by its content, and not verified", where=str(path))
            return map_file(path, found, verify=verify, copied=copied)

        return self._first_good(found, read)

    def _map_sealed(self, resource: SealedResource) -> WeightMap:
        from helios.core.sealed import open_sealed

        assert self._core_key is not None
        key = self._core_key

        def read(path: Path) -> WeightMap:
            open_content(path, resource).close()  # no memory for a file of another length
            return map_memory(
                resource.id,
                resource.decoded_nbytes,
                lambda output: open_sealed(path, resource, key, output),
            )

        return self._first_good(resource, read)

    def find_resource(self, resource: str) -> Path:
        """A file of a resource's length, fetched if need be. Its content isn't looked at. Raises
        CoreError."""
        found = self._resource(resource)

        def take(path: Path) -> Path:
            open_content(path, found).close()
            return path

        return self._first_good(found, take)

    def check_resource(self, resource: str, advance: Callable[[int], None]) -> Path:
        """Checks every byte of a resource of any kind and keeps none; `advance` is told stored
        bytes that are done, from any thread. Returns the file that has them. Raises CoreError."""
        # Imported on use: it is for `helios verify`.
        from helios.core.verification import check_file

        found = self._resource(resource)

        def check(path: Path) -> Path:
            check_file(path, found, self._core_key, advance)
            return path

        self._checked[resource] = self._first_good(found, check)
        return self._checked[resource]

    def _resource(self, resource: str) -> FrameResource | WeightResource | SealedResource:
        found = self.decoded.executables.get(resource) or self.decoded.weights.get(resource)
        if found is None:
            raise CoreError("the core has no such resource", where=f"{resource!r}")
        return found

    def _first_good(
        self,
        resource: FrameResource | WeightResource | SealedResource,
        read: Callable[[Path], Content],
    ) -> Content:
        """What `read` returns for the first location that it doesn't refuse: the core's own files
        first, then what the cache has or can get."""
        reasons = []
        for candidate in self._locations.candidates(resource.id, resource.content_name):
            if candidate.path is None:
                reasons.append(f"{candidate.shown}: {candidate.reason}")
                continue
            try:
                return read(candidate.path)
            except SignedContentError:
                raise
            except CoreError as error:
                reasons.append(f"{candidate.shown}: {error.what}")
        try:
            return self._cache.obtain(resource, self._locations.mirrors(resource.id), read)
        except SignedContentError:
            raise
        except CoreError as error:
            reasons.append(error.what)
            remedy = error.remedy or "The core is incomplete or damaged: get it again"
        raise CoreError(
            f"no location has its content ({'; '.join(reasons)})",
            where=f"resource {resource.id!r} of {self.folder}",
            remedy=remedy,
        )


def read_folder(folder: Path, publisher_key: bytes | None) -> VerifiedEnvelope:
    """The verified envelope of a core's folder, nothing accepted yet. Raises CoreError."""
    what, remedy = "", "Give the core's folder"
    try:
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "there is no such folder"
        elif (folder / DRAFT_FILE).exists() and not (folder / ENVELOPE_FILE).exists():
            what = "is a draft, which has no weights and no signature"
            remedy = "Make a core of it with `ignition fill`"
    except OSError as error:  # a name that no file can have, or nobody may look
        what = f"can't be read: {error.strerror}"
    if what:
        raise CoreError(what, where=str(folder), remedy=remedy)
    return read_envelope(folder / ENVELOPE_FILE, publisher_key)


def open_core(
    path: str | Path,
    *,
    accept: str,
    publisher_key: bytes | None = None,
    allow_unknown_publisher: bool = False,
    trust_store: TrustStore | None = None,
    cache: ResourceCache | None = None,
    core_key: bytes | None = None,
) -> OpenedCore:
    """Opens a core's folder. `accept` must be the signed namespace. The signer must be in the
    trust store (the user's own by default), or be the one whose key `publisher_key` (32 bytes)
    is, or `allow_unknown_publisher` says that it may be anybody. Resources that aren't in the
    folder come from `cache` (the user's own by default). `core_key` (32 bytes) opens a sealed
    core, others don't use it. Raises CoreError naming the file or field, ContractError for the
    contract."""
    folder = Path(path)
    envelope = read_folder(folder, publisher_key)
    publisher = envelope.head.publisher
    check_claim(envelope.message, envelope.head.version, publisher)
    acceptance = authorize(
        accept,
        namespace=publisher.namespace,
        licence_terms=publisher.licence_terms,
        public_key=envelope.public_key,
        pinned=publisher_key is not None,
        allow_unknown_publisher=allow_unknown_publisher,
        store=trust_store or TrustStore(),
        where=str(folder),
    )
    decoded = decode_body(envelope.body)
    contract = decode(decoded.deployment.contract)
    if decoded.key_id is not None:
        _check_core_key(core_key, decoded.key_id, str(folder))
    return OpenedCore(
        folder, envelope, decoded, acceptance, contract, cache or ResourceCache(), core_key
    )


def _check_core_key(core_key: bytes | None, expected: bytes, where: str) -> None:
    from helios.core.sealed import key_id

    if core_key is None:
        raise CoreError(
            "is sealed, and no core key was given",
            where=where,
            remedy="Give the key file from its publisher with --core-key FILE",
        )
    if key_id(core_key) != expected:
        raise CoreError(
            "is sealed with another core key than the given one",
            where=where,
            remedy="Give the key file that belongs to this core",
        )
