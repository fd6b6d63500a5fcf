"""Whether a draft would become a core that opens: what opening and loading one would ask, asked
before weights are drawn and anything is signed. `weightless.fill` is the caller."""

from __future__ import annotations

import hashlib
from pathlib import Path

from google.protobuf.message import DecodeError

from helios.contract import decode
from helios.core import format as core_format
from helios.core.body import DecodedBody, RankResources, decode_body
from helios.core.chunks import open_content, verified_chunks
from helios.core.frames import decode_frame
from helios.core.resources import FrameResource
from helios.errors import CoreError, HeliosError
from helios.runtime.manifest import BufferClass, Manifest
from helios.runtime.manifest_checks import check_manifest, check_modules, check_weights
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import core_pb2
from helios.schema import execution_pb2 as pb
from ignition.preparation.fields import read_bounded
from ignition.preparation.weight_table import WeightTable

_AGAIN = "Write the draft again: ignition prepare --weightless"


def read_frames(source: Path, body: core_pb2.CoreBody) -> list[bytes]:
    """The stored bytes of a draft's executable resources, in their order. Raises a HeliosError
    where a file isn't the one that the draft names."""
    return [
        _read_frame(source, resource, number)
        for number, resource in enumerate(body.executable_resources)
    ]


def _read_frame(source: Path, resource: core_pb2.ExecutableResource, number: int) -> bytes:
    path = _path(source, resource.stored.sha256)
    content = read_bounded(path, core_format.DECODED_LIMIT_NBYTES)
    if hashlib.sha256(content).digest() != resource.stored.sha256:
        raise CoreError(
            f"isn't the file that executable_resources[{number}] names", where=str(path)
        )
    return content


def _path(source: Path, sha256: bytes) -> Path:
    return source / core_format.RESOURCE_FOLDER / core_format.frame_content_name(sha256)


def check_draft(source: Path, body: core_pb2.CoreBody, table: WeightTable) -> None:
    """Holds a draft's body against its frames and its weights' table. Raises CoreError that names
    the field."""
    try:
        _check(source, body, table)
    except HeliosError as error:
        raise CoreError(f"is damaged: {error}", where=str(source), remedy=_AGAIN) from error


def _check(source: Path, body: core_pb2.CoreBody, table: WeightTable) -> None:
    if body.weight_resources:
        raise CoreError("a draft has none", where="weight_resources")
    if not body.deployment.targets:
        raise CoreError("there are none", where="deployment.targets")
    for target in body.deployment.targets:
        for number, rank in enumerate(target.ranks):
            if list(rank.weight_resources) != [table.resource]:
                raise CoreError(
                    f"rank {number} of {target.name!r} has {list(rank.weight_resources)}, and the"
                    f" table is of {table.resource!r}",
                    where="weight_resources",
                )
    decoded = decode_body(_completed(body, table))
    contract = decode(_with_identity(body).deployment.contract)
    contents = {
        resource.id: _content(source, resource)
        for resource in decoded.executables.values()
        if isinstance(resource, FrameResource)
    }
    for manifest, resources in _manifests(decoded, contents):
        check_manifest(manifest, contract)
        check_modules(manifest, resources.module_resources)
        check_weights(manifest, {table.resource: table.nbytes})
        _check_tensors(manifest, table)


def _completed(body: core_pb2.CoreBody, table: WeightTable) -> core_pb2.CoreBody:
    """The body with its weights, whose digests nobody knows yet."""
    nbytes = table.nbytes + -table.nbytes % core_format.WEIGHT_ALIGNMENT
    chunks = -(-nbytes // core_format.CHUNK_NBYTES)
    completed = core_pb2.CoreBody()
    completed.CopyFrom(body)
    completed.weight_resources.add(
        id=table.resource,
        nbytes=nbytes,
        alignment=core_format.WEIGHT_ALIGNMENT,
        chunk_nbytes=core_format.CHUNK_NBYTES,
        chunk_sha256=[bytes(core_format.SHA256_NBYTES)] * chunks,
    )
    return completed


def _with_identity(body: core_pb2.CoreBody) -> core_pb2.CoreBody:
    """The body with a cache identity, which a draft has none of."""
    identified = core_pb2.CoreBody()
    identified.CopyFrom(body)
    identified.deployment.contract.cache_identity = bytes(core_format.SHA256_NBYTES).hex()
    return identified


def _content(source: Path, resource: FrameResource) -> bytes:
    with open_content(_path(source, resource.stored_sha256), resource) as file:
        return b"".join(decode_frame(resource, verified_chunks(file, resource)))


def _manifests(
    decoded: DecodedBody, contents: dict[str, bytes]
) -> list[tuple[Manifest, RankResources]]:
    """Each rank's manifest, decoded."""
    found = []
    for target in decoded.targets.values():
        for rank in target.ranks:
            message = pb.ExecutionManifest()
            try:
                message.ParseFromString(contents[rank.manifest_resource])
            except DecodeError as error:
                raise CoreError(
                    f"is no ExecutionManifest ({error})", where=rank.manifest_resource
                ) from error
            manifest = decode_manifest(message)
            if manifest.target != target.name:
                raise CoreError(
                    f"is of {manifest.target!r}, not of {target.name!r}",
                    where=rank.manifest_resource,
                )
            found.append((manifest, rank))
    return found


def _check_tensors(manifest: Manifest, table: WeightTable) -> None:
    """The table has what the programs read, where they read it, and nothing else."""
    read = {
        buffer.name: (buffer.offset, buffer.nbytes)
        for buffer in manifest.buffers
        if buffer.buffer_class is BufferClass.WEIGHT
    }
    for number, tensor in enumerate(table.tensors):
        place = read.pop(tensor.name, None)
        if place != (tensor.offset, tensor.nbytes):
            has = "have none" if place is None else f"have {place[1]} bytes at {place[0]}"
            raise CoreError(
                f"{tensor.name!r} has {tensor.nbytes} bytes at {tensor.offset}, and the programs"
                f" {has}",
                where=f"table, tensors[{number}]",
            )
    if read:
        raise CoreError(f"has no {next(iter(read))!r}", where="table, tensors")
    end = max((tensor.offset + tensor.nbytes for tensor in table.tensors), default=0)
    if table.nbytes - end >= core_format.WEIGHT_ALIGNMENT:
        raise CoreError(f"is {table.nbytes}, and its tensors end at {end}", where="table, nbytes")
