"""Drafts: all of a core but its weights, and how they are filled.

`draft` records programs from a folder without weights; it needs what preparing for the target
does. `fill` draws the weights and signs; it needs neither compiler nor checkpoint, so that a large
random model is made where it runs. For measurements and tests: such a model says nothing sensible.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError

from helios.core import format as core_format
from helios.errors import ContractError, CoreError
from helios.schema import core_pb2
from helios.schema import execution_pb2 as pb
from ignition.preparation import capturing
from ignition.preparation.checkpoints.weightless import WeightlessCheckpoint
from ignition.preparation.draft_checks import check_draft, read_frames
from ignition.preparation.drawing import draw
from ignition.preparation.export import (
    Carrier,
    CoreWriter,
    check_destination,
    new_folder,
    serialized,
)
from ignition.preparation.fields import JSON_LIMIT_NBYTES, read_bounded
from ignition.preparation.options import Options
from ignition.preparation.packing import CODE_ROWS, Storage
from ignition.preparation.progress import Progress
from ignition.preparation.weight_table import NormalMatrix, Tensor, Values, WeightTable, read_table
from ignition.preparation.weights import WeightSet

TABLE_FILE: Final = "weights.json"
# Matrices by their packing; all else is written out.
_DRAWN: Final = {
    pb.PACKING_ROWS_BF16: Storage.BF16,
    **{storage.packing: storage for storage in CODE_ROWS},
}
_PROGRAMS: Final = (core_pb2.RESOURCE_KIND_EXECUTION_MANIFEST, core_pb2.RESOURCE_KIND_MODULE)


def draft(
    source: Path,
    destination: Path,
    options: Options,
    progress: Progress,
    *,
    replace: bool = False,
) -> None:
    """Writes the draft of a folder with config.json and tokenizer. Raises a HeliosError and leaves
    nothing behind where folder, options or destination don't allow it."""
    options.check()
    if not options.target.is_cuda:
        raise ContractError(
            f"of target {options.target.name} there are no drafts",
            where="--weightless",
            remedy="Choose a cuda target",
        )
    check_destination(destination, replace=replace)
    with progress.stage("reading the folder"):
        checkpoint = WeightlessCheckpoint(source)
    captured = capturing.capture(checkpoint, options, progress)
    with new_folder(destination, replace=replace) as folder:
        writer = CoreWriter(folder)
        capturing.add_programs(writer, captured, options)
        capturing.add_frontend(writer, captured, checkpoint)
        body = core_pb2.CoreBody(
            format_version=core_format.FORMAT_VERSION,
            publisher=core_pb2.Publisher(
                namespace=options.namespace, licence_terms=options.licence_terms
            ),
            deployment=capturing.deployment(captured, checkpoint, options, ""),
            executable_resources=writer.frames,
        )
        (folder / core_format.DRAFT_FILE).write_bytes(serialized(body))
        table = _table(captured.weights, capturing.weight_resource(options))
        (folder / TABLE_FILE).write_bytes(table.to_json())


def fill(
    source: Path,
    destination: Path,
    seed: int,
    key: Ed25519PrivateKey,
    progress: Progress,
    *,
    carrier: Carrier = Carrier.PAYLOAD,
    replace: bool = False,
) -> None:
    """Writes the core of a draft, with weights drawn from `seed`. Raises a HeliosError and leaves
    nothing behind where the draft is damaged or the destination doesn't allow it."""
    if destination.resolve() == source.resolve():
        raise CoreError(
            "is the draft itself, which other cores can be made of",
            where=str(destination),
            remedy="Choose another folder",
        )
    check_destination(destination, replace=replace)
    body = core_pb2.CoreBody()
    try:
        body.ParseFromString(
            read_bounded(source / core_format.DRAFT_FILE, core_format.ENVELOPE_LIMIT_NBYTES)
        )
    except DecodeError as error:
        raise CoreError(
            f"is no draft ({error})", where=str(source / core_format.DRAFT_FILE)
        ) from error
    table = read_table(read_bounded(source / TABLE_FILE, JSON_LIMIT_NBYTES), TABLE_FILE)
    frames = read_frames(source, body)
    check_draft(source, body, table)
    with new_folder(destination, replace=replace) as folder:
        writer = CoreWriter(folder)
        with progress.stage("drawing weights", table.nbytes) as advance:
            done = 0

            def counted(part: memoryview) -> memoryview:
                nonlocal done
                done += part.nbytes
                advance(done)
                return part

            writer.add_weights(table.resource, (counted(part) for part in draw(table, seed)))
        resources = zip(body.executable_resources, frames, strict=True)
        for resource, stored in sorted(resources, key=lambda r: r[0].kind not in _PROGRAMS):
            if resource.kind not in _PROGRAMS and not body.deployment.contract.cache_identity:
                # As `prepare` does: of weights and programs.
                body.deployment.contract.cache_identity = writer.content_digest().hex()
            writer.adopt_frame(resource, stored)
        writer.finish(body.publisher, body.deployment, key, carrier)


def _table(weights: WeightSet, resource: str) -> WeightTable:
    """How each declared weight is drawn, so that activations keep their size: a row of a product
    is a sum over `width` terms."""
    tensors: list[Tensor] = []
    for handle, content in weights.declared():
        if handle.packing in _DRAWN:
            outputs, width = handle.shape
            tensors.append(
                NormalMatrix(
                    handle.name,
                    handle.offset,
                    outputs,
                    width,
                    1 / sqrt(width),
                    _DRAWN[handle.packing],
                )
            )
        else:
            tensors.append(Values(handle.name, handle.offset, content().view("<f4")))
    return WeightTable(resource, weights.nbytes, tuple(tensors))
